import Cryptography
import Foundation
import Glibc
import Messaging
import Testing

@testable import Program

@Suite("Doctor", .script) struct DoctorTests {
    @Test func `A healthy home has no failing check, with the node running and without`() throws {
        try withHome { ann in
            let names: Set = [
                "home", "keystore", "clock", "erasure", "config", "peers", "listen", "advertise", "space", "socket",
                "swap", "descriptors", "node",
            ]
            for isRunning in [false, true] {
                if isRunning { try ann.start() }
                let answer = try ann.ok("doctor")
                #expect(Set(answer.lines.compactMap { $0["name"].string }).isSuperset(of: names), "\(answer)")
                for check in answer.lines {
                    #expect(["ok", "warning"].contains(check["state"].string), "\(check)")
                    #expect(check["message"].string?.isEmpty == false)
                    if check["state"].string == "warning", !["node", "erasure"].contains(check["name"].string) {
                        #expect(check["hint"].string != nil, "\(check)")
                    }
                }
                if isRunning { #expect(try ann.check("core")["state"].string == "ok") }
            }
        }
    }

    @Test func `Each fault is found, with a remedy, and the exit code is 1`() throws {
        try withHome { ann in
            func expectFailure(_ name: String, _ words: String, at location: SourceLocation = #_sourceLocation) throws {
                let answer = try ann.fails(1, "doctor", at: location)
                let found = answer.lines.first { $0["name"].string == name && $0["state"].string == "failed" }
                #expect(found?["message"].string?.contains(words) == true, "\(answer)", sourceLocation: location)
                #expect(found?["hint"].string?.isEmpty == false, "\(answer)", sourceLocation: location)
            }
            chmod(ann.home, 0o755)
            try expectFailure("home", "mode 755")
            chmod(ann.home, 0o700)
            chmod(ann.directory, 0o777)
            try expectFailure("store", ann.directory)
            chmod(ann.directory, 0o700)
            chmod("\(ann.home)/keystore", 0o644)
            try expectFailure("store", "keystore")
            chmod("\(ann.home)/keystore", 0o600)
            let config = ann.contents("config.json")
            try ann.replace("config.json", with: "{ \"listen\": 7 }")
            try expectFailure("config", "line 1")
            try ann.replace("config.json", with: config)
            try ann.replace("peers.json", with: "{ \"peers\": [ {} ] }")
            try expectFailure("peers", "name")
            try ann.replace("peers.json", with: "{ \"peers\": [] }")
            try ann.start()
            let listen = try #require(ann.listen)
            try ann.stop()
            let other = TestNode(name: "bob", directory: ann.directory)
            defer { other.crash() }
            try other.initialise()
            try other.start(["--listen", listen])
            let text = #"{"advertise":[],"listen":["\#(listen)"],"policy":"ask"}"#
            try ann.replace("config.json", with: text)
            try expectFailure("listen", "in use")
            // A running node answers for itself, not its configuration.
            #expect(try other.check("listen")["message"].string == "listens on \(listen)")
            try other.stop()
            #expect(try ann.check("listen")["state"].string == "ok")
            #expect(try ann.check("advertise")["state"].string == "warning")
            // A keystore with one lost copy still opens.
            var keystore = ann.contents("keystore")
            for index in 0..<4_096 { keystore[index] ^= 0x5A }
            try ann.replace("keystore", with: keystore)
            #expect(try ann.check("keystore")["state"].string == "warning")
            #expect(try ann.check("keystore")["hint"].string != nil)
            let nobody = TestNode(name: "nobody", directory: ann.directory)
            #expect(try nobody.fails(1, "doctor").output.contains("does not exist"))
        }
    }

    @Test func `A UDP port of another program, and an interface that does not exist, are found`() throws {
        try withNode { ann in
            try ann.stop()
            let other = try LoopbackSocket.bound(SOCK_DGRAM, at: ann.host, port: ann.port)
            defer { close(other.descriptor) }
            try ann.start(["--discover", "lan:nope0"])
            let taken = try ann.check("UDP")
            #expect(taken["state"].string == "warning" && taken["hint"].string != nil, "\(taken)")
            #expect(taken["message"].string?.contains("another program has the port") == true, "\(taken)")
            let missing = try ann.check("LAN discovery")
            #expect(missing["message"].string?.contains("nope0") == true && missing["hint"].string != nil, "\(missing)")
            try ann.stop()
            let log = Program.text(ann.log)
            #expect(log.contains("links over TCP alone") && log.contains("nope0") && !log.contains(ann.host))
        }
    }

    @Test func `A clock behind the newest time of the home is found`() throws {
        try withNode { ann in
            try ann.stop()
            #expect(try ann.check("clock")["state"].string == "ok")
            // As if it had run an hour later: see ClockMark.
            let later = Int64((Date().timeIntervalSince1970 * 1_000).rounded()) + 3_600_000
            let value = (0..<8).map { UInt8(truncatingIfNeeded: later >> ($0 * 8)) }
            var mark = value + BLAKE2b.hash(Array("mayfly clock".utf8), value, byteCount: 16)[..<8]
            mark += [UInt8](repeating: 0, count: 512)
            try ann.replace("clock", with: mark)
            let behind = try ann.fails(1, "doctor").lines.first { $0["name"].string == "clock" }
            #expect(behind?["state"].string == "failed" && behind?["message"].string?.contains("behind") == true)
            let hint = behind?["hint"].string ?? ""
            #expect(hint.contains("timedatectl") && hint.contains("If it was ahead at an earlier start"), "\(hint)")
            // Garbage in both copies of the mark.
            try ann.replace("clock", with: [UInt8](repeating: 0x33, count: 528))
            #expect(try ann.check("clock")["state"].string == "warning")
        }
    }

    @Test func `Unread messages in memory are a warning from nine tenths of their limit on`() {
        let limit = Limits.memoryTotalByteCount
        #expect(HealthCheck.memory(limit / 10 * 9 - 1).state == .ok)
        let check = HealthCheck.memory(limit / 10 * 9)
        #expect(check.state == .warning && check.hint?.contains("read them") == true)
        let full = HealthCheck.memory(0, full: (0..<6).map { "room \($0)" })
        #expect(full.state == .warning && full.message.hasSuffix("room 0, room 1, room 2, room 3 and 2 more"))
    }
}
