import Adversary
import Cryptography
import Foundation
import Glibc
import Messaging
import Testing
import Transport

/// A secret, in every form in which careless code could leak it.
struct Canary {
    let name: String
    let forms: [Data]

    init(_ name: String, text: String) {
        self.name = name
        forms = [Data(text.utf8), Data(text.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] })]
    }

    init(_ name: String, bytes: [UInt8]) {
        self.name = name
        let base64 = Data(bytes).base64EncodedString()
        let url = base64.replacingOccurrences(of: "+", with: "-").replacingOccurrences(of: "/", with: "_")
        forms = [
            Data(bytes), Data(Hex.encode(bytes).utf8), Data(Hex.encode(bytes).uppercased().utf8),
            Data(base64.trimmingCharacters(in: ["="]).utf8), Data(url.trimmingCharacters(in: ["="]).utf8),
        ]
    }

    func isIn(_ data: Data) -> Bool { forms.contains { data.range(of: $0) != nil } }
}

func expectNone(_ canaries: [Canary], in data: Data, _ place: String, at location: SourceLocation = #_sourceLocation) {
    for canary in canaries where canary.isIn(data) {
        Issue.record("\(canary.name) is in \(place)", sourceLocation: location)
    }
}

/// Plants secrets in a conversation, then searches for them in all files and outputs of a node that did not ask for
/// them.
@Suite("Canaries", .script) struct CanaryTests {
    /// Searches the node's log, files, file names and public process data.
    private func search(_ node: TestNode, for canaries: [Canary], except: [String] = []) {
        let log = FileManager.default.contents(atPath: node.log) ?? Data()
        expectNone(canaries, in: log, "the log of \(node.name)")
        var names = ""
        for case let name as String in FileManager.default.enumerator(atPath: node.home) ?? .init() {
            names += name + "\n"
            // These files hold the user's own entries: names and addresses of peers.
            if ["peers.json", "config.json"].contains(name) || except.contains(name) { continue }
            expectNone(canaries, in: Data(node.contents(name)), "\(name) of \(node.name)")
        }
        expectNone(canaries, in: Data(names.utf8), "a file name of \(node.name)")
        for file in ["cmdline", "environ", "comm", "status", "maps", "limits", "mountinfo"] {
            let data = FileManager.default.contents(atPath: "/proc/\(node.pid)/\(file)") ?? Data()
            expectNone(canaries, in: data, "/proc/PID/\(file) of \(node.name)")
        }
    }

    private func write(_ bytes: Data, _ path: String) {
        _ = FileManager.default.createFile(atPath: path, contents: bytes, attributes: [.posixPermissions: 0o600])
    }

    @Test("No planted secret is in a log, error, check, file, name, argument, environment, hook or core of either node")
    func nowhere() throws {
        try withDirectory { directory in
            let passphrase = "the canary passphrase \(UUID().uuidString)"
            write(Data("\(passphrase)\n".utf8), "\(directory)/passphrase")
            write(Data("wrong \(passphrase)\n".utf8), "\(directory)/wrong")
            let ann = TestNode(name: "ann", directory: directory)
            let bob = TestNode(name: "bob", directory: directory)
            defer { for node in [ann, bob] { node.crash() } }
            try ann.ok("init", "--listen", ann.anyPort, "--name", "ann", "--passphrase-file", "\(directory)/passphrase")
            try bob.initialise()
            // The hook records all that it gets: input, arguments, environment.
            try ann.setHooks([(nil, #"{ cat; echo "$@"; env; } >> "$1""#)])
            try ann.start(["--log-level", "trace", "--passphrase-file", "\(directory)/passphrase"])
            try bob.start(["--log-level", "trace"])
            var canaries = [Canary("the passphrase", text: passphrase)]
            func plant(_ name: String) -> String {
                let text = "canary \(name) \(UUID().uuidString)"
                canaries.append(Canary(name, text: text))
                return text
            }

            let room = plant("conversation name")
            let (annProfile, bobProfile) = (plant("creator's profile"), plant("joiner's profile"))
            let created = try ann.ok("conversation", "create", "--name", room, "--as", annProfile)
            let invite = try ann.ok("invite", "create", room)
            let slug = try #require(invite["slug"].string)
            let id = try #require(created["conversation"].string)
            try bob.ok("join", slug, "--as", bobProfile, "--timeout", "90")
            try ann.wait("peerOnline")
            try bob.wait("peerOnline")
            let verified = try InviteSlug.decode(slug)
            // The short form, too: not even that may be in the log.
            let shortID = Canary("the beginning of the conversation id", text: String(id.prefix(12)))
            canaries += [
                Canary("the invite", text: String(slug.dropFirst("mayfly:join/".count).prefix(60))),
                Canary("the conversation id", bytes: Hex.decode(id) ?? []),
                Canary("the creator's inbox id", bytes: verified.invite.creator.bytes),
                Canary("the creator's key", bytes: verified.creatorKey.bytes),
                Canary("the join secret", bytes: verified.invite.joinSecret),
            ]
            for token in SharedTokens(invite: verified, day: UInt32(time(nil) / 86_400)).tokens {
                canaries.append(Canary("a token of the invite", bytes: token.bytes))
            }
            for node in [ann, bob] {
                let card = try ContactCard(text: try node.card())
                canaries.append(Canary("the card secret of \(node.name)", bytes: card.routingSecret))
                canaries.append(Canary("the contact key of \(node.name)", bytes: card.key.bytes))
                canaries.append(Canary("the contact inbox id of \(node.name)", bytes: InboxID(card.key).bytes))
            }
            canaries.append(Canary("bob's key file", bytes: bob.contents("key")))
            let peer = "canary-peer-\(UUID().uuidString.prefix(8))"
            canaries.append(Canary("the peer's name", text: peer))
            try ann.ok("peer", "add", peer, try bob.card())
            try ann.ok("peer", "ping", peer)

            try ann.ok("send", room, plant("ephemeral text"), "--wait", "delivered", "--timeout", "90")
            let cursors = (try ann.cursor(), try bob.cursor())
            try ann.ok("lifetime", "propose", room, "1d")
            try bob.wait("lifetimeProposed:ours=false,lifetime=1d", after: cursors.1)
            try bob.ok("lifetime", "accept", room)
            try ann.wait("lifetimeAgreed:lifetime=1d", after: cursors.0)
            let sent = try bob.ok("send", room, plant("text"), "--wait", "delivered", "--timeout", "90")
            let fileName = "canary-file-\(UUID().uuidString.prefix(8)).txt"
            canaries.append(Canary("the file's name", text: fileName))
            let fileText = plant("file")
            write(Data(String(repeating: fileText, count: 3_000).utf8), "\(directory)/\(fileName)")
            try ann.ok(
                "send", room, "look", "--file", "\(directory)/\(fileName)", "--wait", "delivered", "--timeout", "90")
            try ann.ok("react", room, sent["message"].string ?? "", "👍")
            try ann.ok("read", room)
            try bob.ok("read", room)
            let annAddress = String(ann.listen?.dropFirst("tcp://".count) ?? "?")
            let bobAddress = String(bob.listen?.dropFirst("tcp://".count) ?? "?")

            // Proves that the search works: members are shown to a command that asks for them.
            let members = try ann.ok("conversation", "members", room).output
            let shown = Data((try ann.ok("read", room).output + members).utf8)
            for name in ["ephemeral text", "text", "file's name", "joiner's profile"] {
                #expect(canaries.contains { $0.name.hasSuffix(name) && $0.isIn(shown) }, "\(name)")
            }
            #expect(Canary("bob's key file", bytes: bob.contents("key")).isIn(Data(bob.contents("key"))))

            // Failing commands, and commands about the node as a whole.
            var failures: [Answer] = []
            for command in [
                ["unlock", "--passphrase-file", "\(directory)/wrong"],
                ["send", room, String(repeating: "x", count: 40_000)], ["join", slug + "x"], ["join", slug],
                ["explode", room], ["invite", "revoke", room, "zzzz"], ["read", "nowhere"],
                ["peer", "add", "other", "mayfly:card/AAAA"], ["save", room, "ffff"], ["lifetime", "accept", room],
                ["conversation", "remove", room, "nobody"], ["peer", "ping", "nobody"],
            ] {
                for node in [ann, bob] {
                    let answer = try node.run(command)
                    if answer.code != 0 { failures.append(answer) }
                }
            }
            #expect(failures.count > 12)
            for answer in failures {
                // An error may repeat what the user typed, except secrets.
                let typed = answer.command.joined(separator: "\n")
                let secret = canaries.filter { canary in !(canary.name == "conversation name" && typed.contains(room)) }
                expectNone(secret, in: Data((answer.output + answer.errors).utf8), "the failure of \(answer.command)")
            }
            for command in [["status"], ["doctor"], ["inbox", "list"], ["outbox", "list"], ["version"]] {
                for node in [ann, bob] {
                    let answer = try node.run(command)
                    let shown = command[0] == "inbox" ? canaries.filter { $0.name != "the conversation id" } : canaries
                    expectNone(shown, in: Data((answer.output + answer.errors).utf8), "\(command) of \(node.name)")
                }
            }

            search(ann, for: canaries + [Canary("bob's address", text: bobAddress)])
            search(bob, for: canaries + [Canary("ann's address", text: annAddress)], except: ["key"])
            try ann.ok("explode", room, "--force")
            try explosionReaches(bob, ann)
            for line in ["link up", "member joined", "agreement began", "message state", "exploded"] {
                #expect(Program.text(ann.log).contains("[NodeRuntime] \(line)"), "\(line)")
            }
            for node in [ann, bob] {
                let log = Program.text(node.log)
                expectNone([shortID], in: Data(log.utf8), "a log")
                #expect(log.range(of: "[0-9a-f]{64}", options: .regularExpression) == nil, "a whole id or key")
            }
            search(ann, for: canaries + [Canary("bob's address", text: bobAddress)])
            search(bob, for: canaries + [Canary("ann's address", text: annAddress)], except: ["key"])
            expectNone(canaries, in: Data(ann.told.utf8), "what a hook was told")
            #expect(ann.told.contains("MAYFLY_EVENT"))

            // A crash leaves no core dump.
            let limits = Program.text("/proc/\(ann.pid)/limits").split(separator: "\n")
            #expect(
                limits.contains { $0.hasPrefix("Max core file size") && $0.split(separator: " ")[4...5] == ["0", "0"] })
            kill(ann.pid, SIGABRT)
            try eventually("it has ended", seconds: 30) { !ann.isRunning }
            for place in [directory, ann.home, FileManager.default.currentDirectoryPath] {
                let names = (try? FileManager.default.contentsOfDirectory(atPath: place)) ?? []
                #expect(!names.contains { $0 == "core" || $0.hasPrefix("core.") }, "a core in \(place)")
            }
            ann.crash()
        }
    }
}
