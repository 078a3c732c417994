import Messaging

/// The mailbox parts of a node: its own boxes, deliveries into members' boxes, and boxes stored for other nodes.
final class Mailboxes: Part {
    /// Call this after changes of configuration, peers or storage, and when the contact inbox is loaded.
    func changed() {
        guard core.machine.contact != nil else { return }
        let terms = terms
        shell.keptBoxes.prune()
        let boxes = shell.keptBoxes.boxesInMemory
        core.turn {
            core.machine.withContact(&$0) { contact, turn in contact.serve(terms, turn) + contact.count(boxes, turn) }
        }
        shell.ownMailbox.changed()
        shell.mailNotices.saveAll()
    }

    private var terms: MailboxTerms {
        var terms = configuration.mailbox?.terms ?? MailboxTerms()
        if let isMailbox = options.isMailbox { terms.isServing = isMailbox }
        return terms
    }

    /// Our service as a mailbox; `nil` if it is off and stores no box.
    var service: MailboxServiceStanding? {
        guard let mailbox = core.machine.contact?.mailbox, mailbox.terms.isServing || mailbox.counts.boxes > 0 else {
            return nil
        }
        return MailboxServiceStanding(terms: mailbox.terms, counts: mailbox.counts, boxes: mailbox.occupancy)
    }
}

package struct OwnMailboxStanding: Sendable {
    /// Its name in `peers.json`.
    package let name: String
    package let standing: MailboxOwnerStateMachine.Standing
    package let boxCount: Int
    package let takenCount: UInt64
}

package struct MailboxServiceStanding: Sendable {
    package let terms: MailboxTerms
    package let counts: MailboxCounts
    package let boxes: [MailboxServiceStateMachine.Occupancy]
}
