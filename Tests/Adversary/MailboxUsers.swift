import Cryptography
import Foundation
import Messaging

/// Abuse by authorised users of a mailbox: named peers that own boxes, and senders that know a box's address.
package struct MailboxUsers: Attackers {
    let target: Target
    let effort: Effort

    /// Each kind of abuse has its own owner.
    package static let kindCount = 3

    /// Puts untaken bodies of the largest size into all granted boxes, from ever new networks.
    func flood() -> Tally {
        links(0) { owner, labels, link, _, tally in
            let boxes = labels.map(owner.box)
            let body = randomBytes(SlotSize.largest)
            var random = SystemRandomness()
            for _ in 0..<64 where effort.alone.goesOn(tally) {
                let kind: SlotKind = tally.count % 2 == 0 ? .disk : .memory
                let put = SlotPut(id: .random(&random), kind: kind, keeping: .oneDay, body: body)
                guard let box = boxes.randomElement() else { break }
                try link.send(.mailboxRequest(.put(box, put)))
                tally.count += 1
                // Any answer counts: the mailbox decides when it has enough.
                guard try link.receive(seconds: 10) != nil else {
                    tally.refused += 1
                    break
                }
                tally.answered += 1
            }
        }
    }

    /// Claims, drops, lists and purges without a pause, over links that replace each other. Every tenth link exceeds
    /// the limits.
    func claims() -> Tally {
        links(1) { owner, labels, link, number, tally in
            var random = SystemRandomness()
            let ids = (0..<Limits.slotListCount).map { _ in SlotID.random(&random) }
            let label = labels[number % labels.count]
            let box = owner.box(label)
            var requests: [Frame] = [owner.claim(labels, over: link)]
            for _ in 0..<20 {
                let others: [MailboxRequest] = [.list(box), .purge(box, ids), .drop([label])]
                requests += others.map { .mailboxRequest($0) } + [owner.claim(labels, over: link)]
            }
            if number % 10 == 0 { requests.append(.mailboxRequest(.list(.random(&random)))) }
            for request in requests { try link.send(request) }
            tally.count += requests.count
            // Until the link is idle for a moment, or the mailbox closes it.
            while link.connection.waitForBytes(seconds: 0.05) {
                guard try link.receive() != nil else {
                    tally.refused += 1
                    break
                }
                tally.answered += 1
            }
        }
    }

    /// Takes and discards unknown tags of existing and unknown boxes, and puts invalid slots.
    func guesses() -> Tally {
        links(2) { owner, labels, link, number, tally in
            var random = SystemRandomness()
            let tags = (0..<Limits.slotTagCount).map { _ in SlotTag.random(&random) }
            let box = number % 2 == 0 ? owner.box(labels[0]) : BoxID.random(&random)
            for _ in 0..<32 {
                try link.send(.mailboxRequest(.take(box, tags)))
                try link.send(.mailboxRequest(.discard(box, tags, answer: [])))
                tally.count += 2
            }
            let wrong = SlotPut(id: SlotID(tags[0]), kind: .notice, keeping: .oneDay, body: [1])
            try link.send(.mailboxRequest(.put(box, wrong)))
            while let frame = try link.receive(seconds: 2) {
                if case .mailboxAnswer(.slot) = frame { throw Failure("a guess has opened a slot") }
                tally.answered += 1
            }
            // An invalid slot ends the link.
            guard link.connection.hasEnded else { throw Failure("a body that is no slot was taken") }
            tally.refused += 1
        }
    }

    /// Uses one link after the other, each from a network of its own, beside a link that holds the boxes.
    private func links(
        _ kind: Int,
        _ use: @escaping @Sendable (BoxOwner, [BoxLabel], HostileLink, _ number: Int, inout Tally) throws -> Void
    ) -> Tally {
        inParallel(1) { _, tally in
            guard target.owners.indices.contains(kind) else { throw Failure("the node has no owner of boxes") }
            let owner = BoxOwner(target.owners[kind], mailbox: target.card, day: target.day)
            var random = SystemRandomness()
            let labels = (0..<(Limits.boxCount / Self.kindCount)).map { _ in BoxLabel.random(&random) }
            try owner.hold(labels, over: try owner.link(from: Source(59_000 + kind)))
            var number = 0
            while effort.alone.goesOn(tally) {
                number += 1
                try use(owner, labels, try owner.link(from: Source(20_000 * kind + number)), number, &tally)
            }
        }
    }
}
