import Foundation
import Glibc
import Messaging
import NodeRuntime
import Testing

/// Files of the home that users edit: an error names its line.
@Suite struct HomeFileTests {
    private func failure(_ text: String) throws -> HomeFileError? {
        try withHome { home in
            writeFile(text, to: "\(home)/peers.json")
            do throws(HomeFileError) {
                _ = try PeersFile.load(home: home)
                return nil
            } catch { return error }
        }
    }

    @Test func `a missing peers file is an empty list`() throws {
        #expect(try withHome { try PeersFile.load(home: $0).peers.isEmpty })
    }

    @Test func `a saved peer is loaded unchanged`() throws {
        try withHome { home in
            var peer = PeersFile.Peer(name: "desk", contact: nil, endpoints: [Endpoint(host: "::1", port: 7440)])
            peer.invitations = .accept
            try PeersFile(peers: [peer]).save(home: home)
            #expect(try PeersFile.load(home: home).peers == [peer])
        }
    }

    @Test func `a configuration that is missing, a symbolic link or a FIFO is refused`() throws {
        try withHome { home in
            let path = "\(home)/config.json"
            #expect(throws: HomeFileError.self) { try NodeConfiguration.read(home: home) }
            #expect(mkfifo(path, 0o600) == 0)
            // At once, without waiting for a writer.
            let pipe = #expect(throws: HomeFileError.self) { try NodeConfiguration.read(home: home) }
            #expect(pipe?.kind == .malformed && pipe?.description.contains("regular file") == true)
            #expect(unlink(path) == 0 && symlink("other.json", path) == 0)
            writeFile("{}", to: "\(home)/other.json")
            let refused = #expect(throws: HomeFileError.self) { try NodeConfiguration.read(home: home) }
            #expect(refused?.kind == .symbolicLink)
        }
    }

    @Test(
        arguments: [
            ("{\n  \"peers\": [\n    {\"name\": \"a\", \"contact\": 5}\n  ]\n}", 3, "peers[0].contact"),
            (
                "{\n  \"peers\": [\n    {\"name\": \"a\"},\n    {\"name\": \"b\", \"endpoints\": [\"udp://x\"]}\n  ]\n}",
                4, "tcp://HOST:PORT"
            ), ("{\n  \"peers\": [\n    {\"contact\": null}\n  ]\n}", 3, "`name` is missing"),
            ("{\n  \"peers\": {}\n}", 2, "a list"), ("{\n  \"peers\": [],\n  \"peer\": []\n}", 3, "no such setting"),
            ("{\n  \"peers\": [\n    {\"name\": \"a\",\n     \"block\": true}\n  ]\n}", 4, "no such setting"),
            ("{\n  \"peers\": [\n    {\"name\": \"a\", \"contact\": \"mayfly:card/AQ\"}\n  ]\n}", 3, "contact card"),
            ("{\n  \"peers\": [\n    {\"name\": \"a\" \"b\"}\n  ]\n}", 3, "not JSON"),
            ("{\n  \"peers\": [\n    {\"name\": nan}\n  ]\n}", 3, "found `nan`"),
            ("{\n  \"peers\": [\n    {\"name\": 0x1p3}\n  ]\n}", 3, "found `0x1p3`"),
            (#"{"peers":[{"name":"a"},{"name":"a"}]}"#, nil, "two peers are named `a`"),
        ] as [(String, Int?, String)]) func `a malformed peers file is refused with the line and the expected value`(
            _ text: String, _ line: Int?, _ words: String
        ) throws
    {
        let error = try #require(try failure(text))
        #expect(line == nil || error.line == line, "\(error)")
        #expect(error.description.contains(words), "\(error)")
        #expect(error.description.contains("peers.json"))
    }

    @Test(arguments: ["", "a b", "../x", String(repeating: "n", count: 65), "ä"])
    func `an invalid name of a peer is refused`(_ name: String) throws {
        #expect(try failure("{\"peers\":[{\"name\":\"\(name)\"}]}")?.kind == .malformed)
    }

    @Test func `the example of a peers file is valid`() throws {
        let path = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "peers.example.json").path()
        let bytes = Array(try Data(contentsOf: URL(filePath: path)))
        let file = try PeersFile.parse(bytes, path: path)
        #expect(file.peers.map(\.name) == ["desk", "lab"])
        #expect(file.peers[0].card?.endpoints.first?.port == 7440 && file.peers[1].allEndpoints.count == 2)
    }

    /// A configuration with one more setting, in line 2.
    private static func configuration(_ setting: String) -> String {
        let policy = setting.contains("policy") ? "" : #","policy":"ask""#
        return "{\"advertise\":[],\"listen\":[]\(policy),\n\(setting)}"
    }

    @Test(arguments: [
        (#""hooks":[{"command":["echo"]}]"#, "absolute path"), (#""hooks":[{"command":[]}]"#, "absolute path"),
        (#""hooks":[{"events":["x"],"command":["/a"]}]"#, "no event `x`"),
        (#""hooks":[{"events":["a"]}]"#, "`command` is missing"), (#""hooks":{}"#, "a list"),
        (#""cap":"1day""#, "`cap`"), (#""cap":"" "#, "`cap`"), (#""cap":"2d""#, "`cap`"),
        (#""cap":"default""#, "`cap`"), (#""policy":"accept-up-to:99d""#, "policy"), (#""policy":"" "#, "policy"),
        (#""policy":"yes""#, "policy"),
    ]) func `an invalid setting is refused with its line and the reason`(_ setting: String, _ words: String) throws {
        try withHome { home in
            writeFile(Self.configuration(setting), to: "\(home)/\(NodeConfiguration.fileName)")
            let error = #expect(throws: HomeFileError.self) {
                try NodeConfiguration.load(home: home).checkHooks(events: ["a"], home: home)
            }
            #expect(error?.description.contains(words) == true && error?.line == 2, "\(String(describing: error))")
        }
    }

    @Test func `valid settings are read, and advertised addresses may be missing`() throws {
        try withHome { home in
            for cap in ["none", "ephemeral", "1d"] {
                writeFile(Self.configuration("\"cap\":\"\(cap)\""), to: "\(home)/\(NodeConfiguration.fileName)")
                #expect(try NodeConfiguration.load(home: home).cap == cap)
            }
            let policy = "accept-up-to:7d"
            try NodeConfiguration(name: nil, listen: [], advertise: [], policy: policy).save(home: home)
            #expect(try NodeConfiguration.load(home: home).policy == policy)
        }
        let bytes = Array(#"{"listen":["tcp://192.0.2.1:7440"],"policy":"ask"}"#.utf8)
        let configuration = try NodeConfiguration.parse(bytes, path: "/home/config.json")
        #expect(configuration.advertised.isEmpty && configuration.listen.count == 1)
    }

    @Test func `a failed replacement of a file leaves no other file and no open descriptor`() throws {
        /// Descriptors of files in this home; other tests run in the same process.
        func openDescriptors(_ home: String) -> Int {
            let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
            return all.count { number in
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)")
                return target?.hasPrefix(home) ?? false
            }
        }
        try withHome { home in
            mkdir("\(home)/peers.json", 0o700)
            defer { rmdir("\(home)/peers.json") }
            for _ in 0..<64 {
                let error = #expect(throws: HomeFileError.self) { try PeersFile().save(home: home) }
                #expect(error?.kind == .system)
            }
            #expect(openDescriptors(home) == 0)
            let left = try FileManager.default.contentsOfDirectory(atPath: home)
            #expect(left.sorted() == ["peers.json", "peers.json.lock"])
        }
    }
}

@Suite("The setting `discover`") struct DiscoverySettingTests {
    @Test(
        "each value is read back as written",
        arguments: ["off", "lan", "lan:eth0", "lan:eth0,wlan0", "lan:br-1a2b.7@x"]) func roundTrip(text: String)
    { #expect(DiscoverySetting(text)?.description == text) }

    @Test(
        "any other value is refused",
        arguments: [
            "", "on", "LAN", "wan", "lan:", "lan:,", "lan:a,", "lan:a b", "lan:a/b", "lan:a:b", "lan:0123456789abcdef",
            "lan eth0", "lan:é",
        ]) func refusals(text: String)
    { #expect(DiscoverySetting(text) == nil) }
}

/// Runs `body` with an empty home on the real disk.
func withHome<Result>(_ body: (String) throws -> Result) throws -> Result {
    let home = FileManager.default.temporaryDirectory.appending(path: "mayfly-home-\(UUID().uuidString)").path()
    mkdir(home, 0o700)
    defer { try? FileManager.default.removeItem(atPath: home) }
    return try body(home)
}

/// Writes into the file itself, like an editor.
func writeFile(_ text: String, to path: String) {
    let file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    _ = text.withCString { write(file, $0, strlen($0)) }
    close(file)
}
