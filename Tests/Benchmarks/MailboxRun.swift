import Adversary
import Control
import Cryptography
import FoundationEssentials
import Glibc
import Messaging

/// A mailbox: rates of puts and takes for a group of boxes, the cost of full boxes, and how soon an owner that returns
/// has its messages.
struct MailboxRun {
    let site: Site

    private static let boxCount = Limits.boxCount
    private static let slotCount = Limits.slotCount
    /// Boxes that one sender fills: a network's puts are limited.
    private static let boxesOfSender = Limits.putSourceRate.burst / slotCount
    /// Simultaneous senders: a stranger's link lasts at most ten seconds.
    private static let senderCount = 16
    /// Slots in flight per link.
    private static let window = 32

    func measure() throws {
        let table = site.table
        func hub(isNew: Bool = false) throws -> NodeProcess { try site.node("hub", isNew: isNew, ["--mailbox"]) }
        let first = try hub(isNew: true)
        let group = try Group(first)
        let link = try group.claim(at: first)
        table.add(.mailboxIn, try group.fill(byteCount: SlotSize.byteCounts[0]))
        table.add(.mailboxTaken, try group.emptyFirst(over: link))
        table.add(.mailboxOut, try group.emptyOthers(over: link))
        try first.stop()
        // The rate limits of puts restart with the process.
        let second = try hub()
        _ = try group.claim(at: second)
        _ = try group.fill(byteCount: Limits.boxByteCount / Self.slotCount)
        table.add(.mailboxMemory, try second.memory())
        try second.stop()
        let third = try hub()
        table.add(.mailboxStart, third.startUp)
        _ = try group.claim(at: third)
        table.add(.mailboxMemoryStart, try third.memory())
        try third.stop()
        try away()
    }

    /// All boxes of a mailbox, owned by one user, and their senders.
    private final class Group {
        private let identity = makeIdentity()
        private var owner: BoxOwner
        private let labels: [BoxLabel]
        private var tags: [[SlotTag]] = []
        private var claims = 0

        init(_ hub: NodeProcess) throws {
            owner = try Self.owner(identity, of: hub)
            var random = SystemRandomness()
            labels = (0..<MailboxRun.boxCount).map { _ in BoxLabel.random(&random) }
            try hub.add("owner", owner.ownCard)
        }

        /// Each process of the mailbox listens at another port.
        private static func owner(_ identity: IdentityKey, of hub: NodeProcess) throws -> BoxOwner {
            BoxOwner(identity, mailbox: try hub.card(), day: UInt32(time(nil) / 86_400))
        }

        /// Returns the owner's link after the mailbox has granted all boxes.
        func claim(at hub: NodeProcess) throws -> HostileLink {
            owner = try Self.owner(identity, of: hub)
            claims += 1
            let link = try owner.link(from: Source(50_000 + claims))
            try owner.hold(labels, over: link)
            return link
        }

        /// Fills each box with slots of this size on the disk. Returns the slots stored per second.
        func fill(byteCount: Int) throws -> Double {
            let body = randomBytes(byteCount)
            var random = SystemRandomness()
            tags = labels.map { _ in (0..<MailboxRun.slotCount).map { _ in SlotTag.random(&random) } }
            let senders = stride(from: 0, to: labels.count, by: MailboxRun.boxesOfSender).map(\.self)
            var time = Duration.zero
            for start in stride(from: 0, to: senders.count, by: MailboxRun.senderCount) {
                let end = min(start + MailboxRun.senderCount, senders.count)
                time += try fill(from: senders[start..<end], with: body)
            }
            return Double(labels.count * MailboxRun.slotCount) / (time / .seconds(1))
        }

        /// Returns the time from the first byte to the last answer.
        private func fill(from firstBoxes: ArraySlice<Int>, with body: [UInt8]) throws -> Duration {
            var links: [HostileLink] = []
            var waiting: [ArraySlice<[UInt8]>] = []
            for first in firstBoxes {
                let link = try owner.link(from: Source(1 + first))
                // Sealed before the clock starts, in windows, so that the mailbox has the machine to itself.
                let puts = try (first..<(first + MailboxRun.boxesOfSender)).flatMap { index in
                    try tags[index].map { tag in
                        let put = SlotPut(id: SlotID(tag), kind: .disk, keeping: .oneDay, body: body)
                        return try link.seal(.mailboxRequest(.put(owner.box(labels[index]), put)))
                    }
                }
                let windows = stride(from: 0, to: puts.count, by: MailboxRun.window)
                waiting.append(windows.map { puts[$0..<($0 + MailboxRun.window)].flatMap(\.self) }[...])
                links.append(link)
            }
            let start = ContinuousClock.now
            for index in links.indices { write(&waiting[index], to: links[index]) }
            while waiting.contains(where: { !$0.isEmpty }) {
                for index in links.indices where !waiting[index].isEmpty {
                    write(&waiting[index], to: links[index])
                    try awaitStored(MailboxRun.window, links[index])
                }
            }
            for link in links { try awaitStored(MailboxRun.window, link) }
            return ContinuousClock.now - start
        }

        private func write(_ waiting: inout ArraySlice<[UInt8]>, to link: HostileLink) {
            if let next = waiting.popFirst() { link.connection.write(next) }
        }

        private func awaitStored(_ count: Int, _ link: HostileLink) throws {
            for _ in 0..<count {
                let answer = try link.receive()
                guard case .mailboxAnswer(.put(_, _, .stored)) = answer else {
                    throw Failure("the mailbox has not stored a slot: \(String(describing: answer).prefix(200))")
                }
            }
        }

        /// Lists, takes and discards the first box. Returns the milliseconds until the mailbox has overwritten all of
        /// it.
        func emptyFirst(over link: HostileLink) throws -> Double {
            let start = ContinuousClock.now
            try link.send(.mailboxRequest(.list(owner.box(labels[0]))))
            guard case .slots(_, let ids) = try answer(over: link), ids.count == MailboxRun.slotCount else {
                throw Failure("the first box is not full")
            }
            try empty(0..<1, over: link)
            return (ContinuousClock.now - start) / .milliseconds(1)
        }

        /// Takes and discards the other boxes. Returns the slots taken and overwritten per second.
        func emptyOthers(over link: HostileLink) throws -> Double {
            let start = ContinuousClock.now
            try empty(1..<labels.count, over: link)
            return Double((labels.count - 1) * MailboxRun.slotCount) / ((ContinuousClock.now - start) / .seconds(1))
        }

        /// Two boxes at a time.
        private func empty(_ range: Range<Int>, over link: HostileLink) throws {
            let numbers = Dictionary(uniqueKeysWithValues: range.map { (owner.box(labels[$0]), $0) })
            var missing = tags.map(\.count)
            var unasked = range
            var left = range.count * MailboxRun.slotCount
            for _ in 0..<2 { try ask(unasked.popFirst(), over: link) }
            while left > 0 {
                switch try answer(over: link) {
                case .slot(let box, _, _, _, _):
                    guard let index = numbers[box] else { throw Failure("a slot of an unknown box") }
                    missing[index] -= 1
                    guard missing[index] == 0 else { break }
                    try discard(index, over: link)
                    try ask(unasked.popFirst(), over: link)
                case .discarded(_, let ids): left -= ids.count
                case let other: throw Failure("the mailbox answers \(String(describing: other).prefix(80))")
                }
            }
        }

        private func answer(over link: HostileLink) throws -> MailboxAnswer {
            while case .mailboxAnswer(let answer)? = try link.receive() {
                if case .waiting = answer { continue }
                return answer
            }
            throw Failure("the mailbox does not answer")
        }

        private func ask(_ index: Int?, over link: HostileLink) throws {
            guard let index else { return }
            for part in parts(index) { try link.send(.mailboxRequest(.take(owner.box(labels[index]), part))) }
        }

        private func discard(_ index: Int, over link: HostileLink) throws {
            for part in parts(index) {
                try link.send(.mailboxRequest(.discard(owner.box(labels[index]), part, answer: [])))
            }
        }

        /// The tags of a box, in parts of the request limit.
        private func parts(_ index: Int) -> [[SlotTag]] {
            stride(from: 0, to: tags[index].count, by: Limits.slotTagCount).map {
                Array(tags[index][$0..<($0 + Limits.slotTagCount)])
            }
        }
    }

    /// One member receives 256 messages, and then one, that the other sent while it was away.
    private func away() throws {
        let count = 256
        let hub = try site.node("mailbox", ["--mailbox"])
        let (ann, bob) = (try site.node("ann"), try site.node("bob"))
        for (name, node) in [("ann", ann), ("bob", bob)] {
            try hub.add(name, try node.card())
            try node.add("hub", try hub.card())
            try node.turnOn("mailbox", at: "hub")
        }
        let conversation = try ann.converse([bob], "away")
        try ann.agree([bob], conversation, terms: ["mailbox": "disk"])
        for node in [ann, bob] { try awaitKeys(node, conversation) }
        try bob.stop()
        // Sent within the two seconds that a member waits for a link, so that the messages share slots.
        let texts = [JSONValue](repeating: .string(NodeProcess.text), count: Self.window)
        for _ in 0..<(count / Self.window) {
            _ = try ann.client.call("send", ["conversation": .string(conversation), "texts": .array(texts)])
        }
        _ = try ann.client.call("send", ["conversation": .string(conversation), "text": "the last", "wait": "mailed"])
        try ann.stop()
        let again = try site.node("bob", isNew: false)
        let ready = ContinuousClock.now
        let watcher = try again.watch("message", conversation)
        var first: ContinuousClock.Instant?
        for number in 0...count {
            guard case .event = try watcher.nextEvent(until: .now + .seconds(20)) else {
                throw Failure("\(number) of \(count) messages came in 20 s")
            }
            first = first ?? .now
        }
        let last = ContinuousClock.now
        site.table.add(.mailboxStartShown, again.startUp + (last - ready) / .milliseconds(1))
        site.table.add(.mailboxShown, (last - (first ?? last)) / .milliseconds(1))
        for node in [again, hub] { try node.stop() }
    }

    /// Waits until the member has all future slice keys of the other one.
    private func awaitKeys(_ node: NodeProcess, _ conversation: String) throws {
        let end = ContinuousClock.now + .seconds(30)
        while ContinuousClock.now < end {
            let answer = try node.client.call("conversation.members", ["conversation": .string(conversation)])
            if answer["members"]?.arrayValue?.contains(where: { $0["mailbox"] == "yes" }) ?? false { return }
            usleep(20_000)
        }
        throw Failure("the keys of the mailbox's slices did not come in 30 s")
    }
}
