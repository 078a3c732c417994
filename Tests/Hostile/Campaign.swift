import Adversary
import Control
import Foundation
import Glibc
import Messaging
import Synchronization

/// One node under attack, an honest pair, and what each attack does to both.
final class Campaign {
    private let ann: Node
    private let bob: Node
    private let carol: Node
    private let pair: HonestPair
    private let target: Target
    private let crowd: Int
    private let door: String
    /// Seconds of the processor that the node takes in a second for the honest pair.
    private var idleLoad = 0.0

    /// Conversations that sleep while a storm knocks at all of them.
    private static let sleepers = 1_000
    /// What memory may grow by, in MiB (reliability.md, E).
    private static let memoryBound = 64.0
    /// Descriptors beside those of the connections that wait for a token.
    private static let descriptorBound = 1_000

    init(mayfly: String, directory: String, crowd: Int) throws {
        self.crowd = crowd
        let ann = try Node(mayfly: mayfly, home: "\(directory)/ann")
        let bob = try Node(mayfly: mayfly, home: "\(directory)/bob")
        let carol = try Node(mayfly: mayfly, home: "\(directory)/carol")
        func text(_ value: JSONValue?) throws -> String {
            guard let text = value?.stringValue else { throw Failure("no text in an answer") }
            return text
        }
        // The attackers' conversation, the honest pair's, and one for late comers.
        func room(_ name: String) throws -> (id: String, slug: String) {
            let id = try text(ann.client.call("conversation.create", ["name": .string(name)])["conversation"])
            return (id, try text(ann.client.call("invite.create", ["conversation": .string(id)])["slug"]))
        }
        let sleeping = try (0..<Self.sleepers).map { try room("sleeper \($0)").slug }
        let enemies = try room("enemies")
        let crowded = try room("crowded")
        door = try room("door").slug
        let friends = try room("friends")
        let joined = try bob.client.call("join", ["slug": .string(friends.slug), "timeout": "10s"])
        guard joined["state"] == "ready" else { throw Failure("the honest pair did not meet") }
        let cardText = try text(ann.client.call("peer.card", [:])["contact"])
        _ = try carol.client.call("peer.add", ["name": "ann", "card": .string(cardText)])
        let card = try ContactCard(text: cardText)
        guard let endpoint = card.endpoints.first else { throw Failure("the card names no endpoint") }
        (self.ann, self.bob, self.carol) = (ann, bob, carol)
        pair = HonestPair(ann: ann, bob: bob, carol: carol, conversation: friends.id)
        target = Target(
            port: endpoint.port,
            card: card,
            invite: enemies.slug,
            crowded: crowded.slug,
            sleeping: sleeping,
            socket: ControlSocket(home: ann.home).path,
            day: UInt32(time(nil) / 86_400)
        )
    }

    /// - Returns: whether every bound that does not depend on the machine held.
    func run(_ attacks: [Attack], seconds: Double) throws -> Bool {
        let each = max(3, seconds / Double(attacks.count + 1))
        _ = pair.chat(seconds: 2) {}
        let before = ann.processorTime
        let (idle, _) = pair.chat(seconds: each) {}
        idleLoad = (ann.processorTime - before) / each
        show(
            "attack",
            "units/s",
            "answered",
            "closed",
            "CPU us",
            "RSS MiB",
            "fds",
            "message p50/p99",
            "connect p50/p99",
            "x"
        )
        show(
            "none",
            "",
            "",
            "",
            "",
            String(format: "%.0f", ann.memory()),
            "\(ann.descriptors)",
            figures(idle.message(0.5), idle.message(0.99)),
            figures(idle.connect(0.5), idle.connect(0.99)),
            ""
        )
        var isWhole = true
        for attack in attacks { if try !run(attack, each, idle) { isWhole = false } }
        let hasEnded = [ann, bob, carol].map { $0.stop() }.allSatisfy { $0 }
        if !hasEnded { print("a node did not end cleanly") }
        return isWhole && hasEnded
    }

    private func run(_ attack: Attack, _ seconds: Double, _ idle: HonestPair.Samples) throws -> Bool {
        let (memory, processor) = (ann.memory(), ann.processorTime)
        var (peak, descriptors) = (memory, 0)
        let start = ContinuousClock.now
        let watcher = Watcher(ann)
        let target = target
        let (isLate, carol, door, crowd) = (attack == .joins, carol, door, crowd)
        let (samples, tally) = pair.chat(seconds: seconds) {
            let late = isLate ? Late(home: carol.home, slug: door) : nil
            let effort = Effort(seconds: seconds, crowd: attack == .slowloris ? min(crowd, 2_000) : crowd)
            let tally = attack.run(target, effort)
            late?.report()
            return tally
        }
        let time = (ContinuousClock.now - start) / .seconds(1)
        (peak, descriptors) = watcher.end()
        let cost = max(0, ann.processorTime - processor - idleLoad * time) / Double(max(1, tally.count)) * 1_000_000
        let slowest = max(samples.message(0.99) / idle.message(0.99), samples.connect(0.99) / idle.connect(0.99))
        var wrong: [String] = []
        if !ann.isAlive { wrong.append("the node is gone") }
        if peak - memory > Self.memoryBound { wrong.append("memory") }
        if descriptors > crowd + Self.descriptorBound { wrong.append("descriptors") }
        if samples.failures > 0 { wrong.append("\(samples.failures) honest failures") }
        if let failure = tally.failure { wrong.append(failure) }
        let heads = String(format: "%.1f", slowest)
        show(
            attack.rawValue + (tally.held > 0 ? " (\(tally.held) held)" : ""),
            String(format: "%.1f", Double(tally.count) / time),
            "\(tally.answered)",
            "\(tally.refused)",
            String(format: "%.0f", cost),
            String(format: "%.0f→%.0f", memory, peak),
            "\(descriptors)",
            figures(samples.message(0.5), samples.message(0.99)),
            figures(samples.connect(0.5), samples.connect(0.99)),
            heads + (wrong.isEmpty ? "" : " " + wrong.joined(separator: ", "))
        )
        return wrong.isEmpty
    }

    private func figures(_ median: Double, _ tail: Double) -> String { String(format: "%.2f/%.2f ms", median, tail) }

    private func show(_ columns: String...) {
        print("| " + columns.joined(separator: " | ") + " |")
        fflush(nil)
    }
}

/// An honest joiner in the midst of a flood, by another invite.
private final class Late: Sendable {
    private let done = DispatchSemaphore(value: 0)
    private let answer = Mutex("")

    init(home: String, slug: String) {
        Thread.detachNewThread { [self] in
            sleep(1)
            let begin = ContinuousClock.now
            let client = try? ControlClient(home: home)
            let joined = try? client?.call("join", ["slug": .string(slug), "timeout": "30s"])
            let time = (ContinuousClock.now - begin) / .milliseconds(1)
            let isIn = joined?["state"] == "ready"
            answer.withLock { $0 = isIn ? String(format: "%.0f ms", time) : "not at all" }
            done.signal()
        }
    }

    func report() {
        done.wait()
        print("an honest join beside it: \(answer.withLock { $0 })")
    }
}
