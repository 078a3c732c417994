import Crypto

enum ReceivedContent {
    /// A new message, to be stored and shown.
    case new(Message, NodeAction.Keeping)
    case other([NodeAction])
}

struct ReceivedBatch {
    let link: LinkID
    let names: ConversationNames
    /// Memory left for contents of all inboxes, in bytes.
    var memoryAvailable: Int
    /// The contents come from a mailbox, which may overstate their age: see ``SlotAge/isDoubtful``.
    var isAgeDoubtful = false
    /// Acknowledges all contents of the frame.
    var said = Acknowledgement()
    /// Contents refused for lack of room.
    var refusedCount = 0
    /// Expiry of the messages that this frame adds; the archive does not know them before the turn ends.
    private(set) var kept: [MessageID: Timestamp?] = [:]
    private(set) var actions: [NodeAction] = []
    /// New messages without a `keep` action yet, all with the same ``keeping``.
    private var new: [Message] = []
    private var keeping = NodeAction.Keeping.memory

    init(_ names: ConversationNames, on link: LinkID, memoryAvailable: Int, count: Int) {
        self.names = names
        self.link = link
        self.memoryAvailable = memoryAvailable
        kept.reserveCapacity(count)
        new.reserveCapacity(count)
    }

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

/// A received content that has moved from memory to disk.
package struct StoredContent: Hashable, Sendable {
    package let id: MessageID
    package let sender: PublicKey

    package init(id: MessageID, sender: PublicKey) {
        self.id = id
        self.sender = sender
    }
}
