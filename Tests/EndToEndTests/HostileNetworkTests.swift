import Adversary
import Crypto
import Foundation
import Glibc
import Messaging
import Synchronization
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
        let card = try ContactCard(text: try ann.ok("peer", "card")["contact"].string ?? "")
        var sleeping: [String] = []
        for number in 0..<sleepers {
            try ann.ok("conversation", "create", "--name", "sleeper \(number)")
            sleeping.append(try ann.ok("invite", "create", "sleeper \(number)")["slug"].string ?? "")
            _ = try ann.run(["inbox", "sleep", "sleeper \(number)"])
        }
        func invite(_ name: String) throws -> String {
            try ann.ok("conversation", "create", "--name", name)
            return try ann.ok("invite", "create", name)["slug"].string ?? ""
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

    @Test("Under every abuse of a mailbox, by owners and by strangers, it lives and its users go on")
    func mailboxUsers() throws {
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

    @Test("Under every abuse of a rendezvous node by its users it lives, and the others talk through it")
    func relayUsers() throws {
        try withDirectory { directory in
            let nodes = ["hub", "ann", "bob"].map { TestNode(name: $0, directory: directory) }
            let (hub, ann, bob) = (nodes[0], nodes[1], nodes[2])
            defer { for node in nodes { node.crash() } }
            try hub.initialise()
            try hub.start(["--rendezvous"])
            // The members are absent. Over UDP the two would punch a path past the third.
            for node in [ann, bob] {
                try node.initialise(["--advertise", "tcp://127.0.0.1:9"])
                try node.start(["--no-udp"])
            }
            let card = try hub.ok("peer", "card")["contact"].string ?? ""
            try hub.ok("peer", "add", "ann", try ann.ok("peer", "card")["contact"].string ?? "")
            try ann.ok("peer", "add", "hub", card)
            try ann.ok("peer", "set", "hub", "rendezvous=on")
            try eventually("a reservation") {
                try ann.ok("peer", "card")["endpoints"].list.contains { $0.string?.hasPrefix("relay://") ?? false }
            }
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
            let paths = try ann.ok("conversation", "members", "room").json["members"].list
            #expect(paths.compactMap { $0["path"].string } == ["relayed"])
            try eventually("their reservations and streams are gone", seconds: 40) {
                let status = try hub.ok("status")["rendezvous"]
                return status["users"].integer == 1 && status["streams"].integer == 1
            }
            for node in nodes { try node.stop() }
        }
    }

    @Test(
        "A neighbour's floods of LAN discovery get no answer, and cost the chat and the memory nothing",
        .enabled(if: Program.canMakeNamespaces, "making network namespaces needs root and `ip`")) func neighbours()
        throws
    {
        let cable = try Cable()
        try cable.move(cable.names[0], to: "10.77.0.1/16")
        try cable.move(cable.names[1], to: "10.77.0.2/16")
        try Program.tool("ip", "-n", cable.names[1], "route", "add", "local", "10.77.128.0/17", "dev", "lo")
        try withHomes("ann", "bob") { nodes in
            for node in nodes {
                node.prefix = ["ip", "netns", "exec", cable.names[0]]
                try node.start(["--listen", "tcp://0.0.0.0:0", "--discover", "lan"])
            }
            let (ann, bob) = (nodes[0], nodes[1])
            try meet(ann, bob)
            var target = try target(ann, sleepers: 1)
            target.neighbourhood = try Neighbourhood(
                home: "/run/netns/\(cable.names[0])", neighbour: "/run/netns/\(cable.names[1])", device: "veth0",
                first: "10.77.128.0")
            try say("warm", bob)
            let memory = ann.residentByteCount
            for attack in Attack.allCases where attack.ground == .network {
                let tally = try survive(attack, ann, target, memory: memory) { try say("after \(attack)", bob) }
                // Only a replay of a true announcement is answered, now and then.
                #expect((tally.answered > 0) == (attack == .lanReplays), "\(attack): \(tally)")
            }
            for node in nodes { try node.stop() }
        }
    }

    @Test("A member that pings without end is answered at the limited rate, and the others talk") func pings() throws {
        try withEnemy { ann, bob, enemy, _ in
            var bytes: [UInt8] = []
            for number in 0..<20_000 { bytes += try enemy.link.seal(.ping(UInt64(number))) }
            let start = ContinuousClock.now
            let flood = bytes
            let descriptor = enemy.link.connection.descriptor
            let done = DispatchSemaphore(value: 0)
            Thread.detachNewThread {
                // All bytes, as fast as the node reads them.
                _ = flood.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
                done.signal()
            }
            var pongs = 0
            while pongs < 4_000, let frame = try enemy.link.receive(seconds: 20) {
                if case .pong = frame { pongs += 1 }
            }
            // A burst at once, then a group each millisecond.
            let time = Int((.now - start) / .milliseconds(1))
            let groups = Limits.idleFrameRate.burst + time + 2
            let most = Limits.idleFrameGroup * groups
            #expect(pongs == 4_000 && pongs <= most, "\(pongs) of at most \(most)")
            // Without a wait for all members: the attacker acknowledges nothing.
            try bob.ok("send", "room", "among them")
            try eventually("ann has it", seconds: 30) { try ann.texts().contains("among them") }
            done.wait()
        }
    }

    @Test("Holders of invites wake sleeping inboxes at the limited rate") func wakes() throws {
        try withHomes("ann") { nodes in
            let ann = nodes[0]
            try ann.start()
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

    @Test("A node that dials itself, or its own echo, is refused and goes on") func reflection() throws {
        try withHomes("ann") { nodes in
            let ann = nodes[0]
            try ann.start()
            let card = try ann.ok("peer", "card")["contact"].string ?? ""
            _ = try ann.run(["peer", "add", "myself", card])
            let answer = try ann.run(["peer", "ping", "myself", "--timeout", "2"])
            #expect(answer.code != 0, "\(answer)")
            let echo = try Echo()
            defer { echo.end() }
            var mirrored = try ContactCard(text: card)
            mirrored.endpoints = [Messaging.Endpoint(host: "127.0.0.1", port: echo.port)]
            mirrored.key = makeIdentity().publicKey
            try ann.ok("peer", "add", "mirror", mirrored.description)
            #expect(try ann.run(["peer", "ping", "mirror", "--timeout", "2"]).code != 0)
            #expect(echo.byteCount > 0, "it has dialled")
            try ann.ok("status")
            try ann.stop()
        }
    }

    // MARK: A member of the conversation

    /// `ann` and `bob` in `room`, and a member that follows no rule.
    private func withEnemy(
        _ body: (_ ann: TestNode, _ bob: TestNode, _ enemy: HostileMember, NodeAddress) throws -> Void
    ) throws {
        try withRoom { ann, bob, _ in
            let address = NodeAddress(host: ann.host, port: ann.port)
            let slug = try ann.ok("invite", "create", "room")["slug"].string ?? ""
            let enemy = try HostileMember(slug: slug, at: address, day: UInt32(time(nil) / 86_400))
            try body(ann, bob, enemy, address)
            #expect(ann.isRunning)
            // Without a wait for all members: the attacker acknowledges nothing.
            try ann.ok("send", "room", "we still talk")
            try eventually("bob has it", seconds: 30) { try bob.texts().contains("we still talk") }
        }
    }

    @Test("A member that forges is disconnected, and not answered for a while") func forger() throws {
        try withEnemy { ann, _, enemy, address in
            for number in 1...8 {
                var state = enemy.welcome.group
                state.version += UInt64(number)
                state.name = "mine"
                var source = Randomness.system
                let signed = state.signed(by: enemy.identity, &source)
                try enemy.link.send(.group(GroupUpdate(state: signed, members: [], departures: [])))
            }
            #expect(enemy.link.connection.readToEnd(seconds: 20) != nil, "the link is closed")
            #expect(throws: (any Error).self) { _ = try enemy.dialAgain(at: address, counter: 1) }
            #expect(try ann.ok("conversation", "show", "room")["name"].string == "room")
        }
    }

    @Test("A content in another member's name, or in an unknown one, is neither shown nor acknowledged") func impostor()
        throws
    {
        try withEnemy { ann, _, enemy, _ in
            var source = Randomness.system
            try enemy.link.send(.content(enemy.text("under nobody's name", id: .random(&source)), age: 0))
            let own = enemy.text("under its own")
            try enemy.link.send(.content(own, age: 0))
            var acknowledged: [MessageID] = []
            while acknowledged.isEmpty, let frame = try enemy.link.receive(seconds: 20) {
                if case .acknowledgement(let said) = frame { acknowledged += said.stored + said.held }
            }
            #expect(acknowledged == [own.id])
            let texts = try ann.texts()
            #expect(texts.contains("under its own") && !texts.contains("under nobody's name"))
        }
    }
}

private final class Echo: Sendable {
    let port: UInt16
    private let listener: Int32
    private let count = Mutex(0)
    var byteCount: Int { count.withLock { $0 } }

    init() throws {
        (listener, port) = try LoopbackSocket.bound(SOCK_STREAM, at: "127.0.0.1")
        guard listen(listener, 16) == 0 else { throw HarnessError("echo: \(errno)") }
        Thread.detachNewThread { [self] in
            while case let peer = accept(listener, nil, nil), peer >= 0 {
                var bytes = [UInt8](repeating: 0, count: 4_096)
                while case let got = recv(peer, &bytes, bytes.count, 0), got > 0 {
                    count.withLock { $0 += got }
                    send(peer, bytes, got, Int32(MSG_NOSIGNAL))
                }
                close(peer)
            }
        }
    }

    func end() { shutdown(listener, Int32(SHUT_RDWR)) }
}
