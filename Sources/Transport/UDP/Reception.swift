import NIOCore

/// The first bytes of an incoming connection, read before it got its channel.
package struct Opening: Sendable {
    /// At least the whole preamble.
    package let bytes: [UInt8]
    /// When it was accepted: the timeouts start there.
    package let since: NIODeadline

    package init(bytes: [UInt8], since: NIODeadline) {
        self.bytes = bytes
        self.since = since
    }
}

/// A listener's callbacks to its owner, on the owner's loop.
package struct Reception: Sendable {
    /// Why a connection with these first bytes gets no channel; `nil` accepts it. Costs a table lookup.
    package let refuses: @Sendable ([UInt8]) -> Rejection?
    /// Takes a connection and its first bytes, if they were read. Closes the channel or throws to refuse it.
    package let accept: @Sendable (any Channel, Opening?) throws -> Void
    /// A connection failed without a channel. For counters only.
    package let rejected: @Sendable (Rejection) -> Void
}
