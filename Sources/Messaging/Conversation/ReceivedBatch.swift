import Crypto

/// What one content has come to.
enum ReceivedContent {
    /// It is kept and shown.
    case new(Message, NodeAction.Keeping)
    case other([NodeAction])
}

/// What the contents of one frame have come to so far.
struct ReceivedBatch {
    let link: LinkID
    let names: ConversationNames
    /// What all inboxes may still hold in memory, in bytes.
    var memoryAvailable: Int
    /// The contents come from a box, and their age may be too large: see ``SlotAge/isDoubtful``.
    var isAgeDoubtful = false
    /// The answer to all of them.
    var said = Acknowledgement()
    /// Contents for which there was no room.
    var refusedCount = 0
    /// Of those that the archive is told of behind this frame: when they end.
    private(set) var kept: [MessageID: Timestamp?] = [:]
    private(set) var actions: [NodeAction] = []
    /// Messages of which no action tells yet. All are kept in the same place.
    private var new: [Message] = []
    private var keeping = NodeAction.Keeping.memory

    init(_ names: ConversationNames, on link: LinkID, memoryAvailable: Int, count: Int) {
        self.names = names
        self.link = link
        self.memoryAvailable = memoryAvailable
        kept.reserveCapacity(count)
        new.reserveCapacity(count)
    }

    /// Takes what the next content has come to.
    mutating func add(_ received: ReceivedContent, _ turn: Turn) {
        switch received {
        case .new(let message, let keeping):
            if keeping != self.keeping { tellOfNew(turn) }
            self.keeping = keeping
            kept[message.content.id] = message.expiresAt
            new.append(message)
        case .other(let actions):
            guard !actions.isEmpty else { return }
            tellOfNew(turn)
            for case .keep(_, let messages, _) in actions {
                for message in messages { kept[message.content.id] = message.expiresAt }
            }
            self.actions += actions
        }
    }

    /// All contents of the frame have been taken.
    mutating func finish(_ turn: Turn) {
        tellOfNew(turn)
        if !said.isEmpty { actions.append(.transmit(link, .acknowledgement(said))) }
    }

    private mutating func tellOfNew(_ turn: Turn) {
        guard !new.isEmpty else { return }
        actions.append(.keep(names.client, new, keeping))
        actions.append(names.events(.came, new.map(\.content.id), turn))
        new = []
    }

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
