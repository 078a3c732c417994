import Crypto

/// What the contents of one frame have come to so far.
struct ReceivedBatch {
    let link: LinkID
    /// What all inboxes may still hold in memory, in bytes.
    var memoryAvailable: Int
    /// The answer to all of them.
    var said = Acknowledgement()
    /// Those that the archive is told of behind this frame.
    var kept: [MessageID] = []
    /// When they end.
    var ends: [MessageID: Timestamp] = [:]

    mutating func acknowledge(_ message: MessageID, isStored: Bool) {
        if isStored { said.stored.append(message) } else { said.held.append(message) }
    }
}

/// A content of a member that waited in memory and is on the disk now.
package struct StoredContent: Hashable, Sendable {
    package let id: MessageID
    package let sender: PublicKey

    package init(id: MessageID, sender: PublicKey) {
        self.id = id
        self.sender = sender
    }
}
