import NIOCore

/// What a connection to us has said before it got its channel.
package struct Opening: Sendable {
    /// Its first bytes, the whole preamble at least.
    package let bytes: [UInt8]
    /// When it came: limits of time count from there.
    package let since: NIODeadline

    package init(bytes: [UInt8], since: NIODeadline) {
        self.bytes = bytes
        self.since = since
    }
}

/// What a listener asks its owner, and hands over to it; all of it on the owner's loop.
package struct Reception: Sendable {
    /// Why a connection with these first bytes gets no channel; `nil` lets it in. Costs a probe of a table.
    package let refuses: @Sendable ([UInt8]) -> Rejection?
    /// A connection, and what it has said if that has been read. It closes the channel or throws if it does not want it.
    package let accept: @Sendable (any Channel, Opening?) throws -> Void
    /// A connection came to nothing without a channel. For counting only.
    package let rejected: @Sendable (Rejection) -> Void
}
