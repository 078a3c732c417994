import Adversary
import Cryptography
import Foundation
import Glibc
import Messaging
import Testing

/// Attacks on a real node while an honest pair talks. `make hostile` does the same for longer and measures; these
/// bounds hold on any machine.
@Suite("Under attack", .script, .serialized) struct HostileNetworkTests {
    private static let crowd = 400
    private static let memoryBound = 64 << 20

    private func descriptorCount(_ node: TestNode) -> Int {
        (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(node.pid)/fd"))?.count ?? 0
    }

    private func target(_ ann: TestNode, sleepers: Int = 8) throws -> Target {
        let card = try ContactCard(text: try ann.card())
        var sleeping: [String] = []
        for number in 0..<sleepers {
            try ann.ok("conversation", "create", "--name", "sleeper \(number)")
            sleeping.append(try ann.ok("invite", "create", "sleeper \(number)")["slug"].string ?? "")
            _ = try ann.run(["inbox", "sleep", "sleeper \(number)"])
        }
        func invite(_ name: String) throws -> String {
            try ann.ok("conversation", "create", "--name", name)
            return try ann.invite(name)
        }
        return Target(
            address: NodeAddress(host: ann.host, port: try #require(card.endpoints.first?.port)), card: card,
            invite: try invite("enemies"), crowded: try invite("crowded"), sleeping: sleeping,
            socket: "\(ann.home)/control.sock", day: UInt32(time(nil) / 86_400))
    }

    @Test(
        "Under every attack the node lives, memory and descriptors are bounded and recover, and the honest pair talks")
    func everyAttack() throws {
        try withRoom { ann, bob, _ in
            let target = try target(ann)
            try say("warm", ann)
            let (memory, descriptors) = (ann.residentByteCount, descriptorCount(ann))
            // The other attacks have their own tests below.
            for attack in Attack.allCases where attack.ground == .node {
                let tally = try survive(attack, ann, target, memory: memory) { try say("after \(attack)", bob) }
                switch attack {
                case .badTokens, .knocks: #expect(tally.answered == 0, "\(attack): not a byte for a stranger")
                case .proposals:
                    // Read now, before events of later attacks push these out of the log. The number of questions is
                    // limited.
                    let asked = try ann.ok("watch", "enemies", "--since", "0", "--timeout", "0.1").lines.count {
                        $0["event"].string == "lifetimeProposed"
                    }
                    #expect((1...4).contains(asked), "\(asked) prompts")
                default: break
                }
                #expect(descriptorCount(ann) <= descriptors + Self.crowd + 300, "\(attack)")
            }
            try eventually("the attackers' connections are gone", seconds: 40) {
                descriptorCount(ann) <= descriptors + 40
            }
            #expect(try ann.ok("invite", "create", "room")["slug"].string != nil)
        }
    }

    /// Runs an attack: it must get no forbidden answer, the node must live, and its memory must be bounded.
    @discardableResult private func survive(
        _ attack: Attack, _ node: TestNode, _ target: Target, memory: Int, seconds: Double = 0.5,
        then talk: () throws -> Void
    ) throws -> Tally {
        let tally = attack.run(target, Effort(seconds: seconds, crowd: Self.crowd, limit: 4_000))
        #expect(tally.count > 0 && tally.failure == nil, "\(attack): \(tally)")
        #expect(node.isRunning, "\(attack)")
        try talk()
        #expect(node.residentByteCount - memory < Self.memoryBound, "\(attack)")
        return tally
    }

    @Test func `Under every abuse of a mailbox, by owners and by strangers, it lives and its users go on`() throws {
        try withDirectory { directory in
            let (hub, bob) = (TestNode(name: "hub", directory: directory), TestNode(name: "bob", directory: directory))
            defer { for node in [hub, bob] { node.crash() } }
            for node in [hub, bob] { try node.initialise() }
            try hub.start(["--mailbox"])
            try bob.start()
            try meet(hub, bob)
            var target = try target(hub)
            for number in 0..<MailboxUsers.kindCount {
                let owner = BoxOwner(makeIdentity(), mailbox: target.card, day: target.day)
                try hub.ok("peer", "add", "owner-\(number)", owner.ownCard.description)
                target.owners.append(owner.identity)
            }
            let memory = hub.residentByteCount
            for attack in Attack.allCases where attack.ground == .mailbox {
                let tally = try survive(attack, hub, target, memory: memory) { try say("after \(attack)", bob) }
                #expect(tally.answered > 0, "\(attack)")
            }
        }
    }

    @Test func `Under every abuse of a rendezvous node by its users it lives, and the others talk through it`() throws {
        try withNodes(["hub", "ann", "bob"]) { nodes in
            let (hub, ann, bob) = (nodes[0], nodes[1], nodes[2])
            try hub.initialise()
            try hub.start(["--rendezvous"])
            // The members are absent. Over UDP the two would punch a path past the third.
            for node in [ann, bob] {
                try node.initialise(["--advertise", "tcp://127.0.0.1:9"])
                try node.start(["--no-udp"])
            }
            let card = try hub.card()
            try introduce(hub, ann)
            try meet(ann, bob)
            var target = Target(
                address: NodeAddress(host: hub.host, port: hub.port), card: try ContactCard(text: card), invite: "",
                crowded: "", sleeping: [], socket: "", day: UInt32(time(nil) / 86_400))
            for number in 0..<RelayUsers.userCount {
                let enemy = makeIdentity()
                let secret = randomBytes(ContactCard.routingSecretByteCount)
                let nowhere = Messaging.Endpoint(host: "127.0.0.1", port: 9)
                let card = ContactCard(key: enemy.publicKey, routingSecret: secret, endpoints: [nowhere])
                try hub.ok("peer", "add", "enemy-\(number)", card.description)
                target.users.append(enemy)
            }
            try say("warm", bob)
            let memory = hub.residentByteCount
            for attack in Attack.allCases where attack.ground == .relay {
                try survive(attack, hub, target, memory: memory, seconds: 1) { try say("after \(attack)", bob) }
            }
            let paths = try ann.members().list
            #expect(paths.compactMap { $0["path"].string } == ["relayed"])
            try eventually("their reservations and streams are gone", seconds: 40) {
                let status = try hub.ok("status")["rendezvous"]
                return status["users"].integer == 1 && status["streams"].integer == 1
            }
            for node in nodes { try node.stop() }
        }
    }

    @Test func `Holders of invites wake sleeping inboxes at the limited rate`() throws {
        try withNode { ann in
            let target = try target(ann, sleepers: 40)
            func awake() throws -> Int {
                try ann.ok("inbox", "list").lines.count { $0["state"].string == "awake" && !$0["conversation"].isNull }
            }
            let before = try awake()
            let start = ContinuousClock.now
            // It ends with its last dial; a slow machine makes few a second.
            let tally = Attack.wakes.run(target, Effort(seconds: 60, crowd: 0, limit: 400))
            let woken = try awake() - before
            let most = Limits.guestWakeRate.burst + Int((.now - start) / .milliseconds(1) / 250) + 1
            #expect(tally.count > most && tally.failure == nil, "\(tally)")
            #expect((1...most).contains(woken), "\(woken) of at most \(most)")
            try ann.stop()
        }
    }
}
