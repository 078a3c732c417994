import Adversary
import Control
import Cryptography
import FoundationEssentials
import TestSupport

/// Speed of two minimal processes that only do the necessary work: `Tests/Floor`.
struct Floor {
    private let program = sibling("floor")

    init() throws(Failure) {
        guard FileManager.default.isExecutableFile(atPath: program) else {
            throw Failure("there is no program \(program): `make bench` makes it")
        }
    }

    func measure(in directory: String, into table: Table) throws {
        let figures: JSONValue = try JSONReader.read(try Child.run([program, directory, "20000"]).dropLast())
        for (figure, name) in [
            (Figure.floorRate, "rate"), (.floorSenderTime, "senderCPU"), (.floorReceiverTime, "receiverCPU"),
            (.floorStored, "stored"), (.floorMemory, "memory"), (.floorBulk, "bulk"),
        ] {
            switch figures[name] {
            case .number(let value): table.add(figure, value)
            case .integer(let value): table.add(figure, Double(value))
            default: throw Failure("the floor has no figure `\(name)`: \(figures.text)")
            }
        }
    }
}

struct Links {
    func measure(into table: Table) throws {
        table.add(.handshakes, try handshakes())
        let output = try Child.run([sibling("linkrates"), "64", "1"])
        for line in String(decoding: output, as: UTF8.self).split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count >= 3, let rate = Double(words[1]) else { continue }
            if words[0] == "TCP" { table.add(.linkTCP, rate) }
            if words[0] == "UDP" { table.add(.linkUDP, rate) }
        }
    }

    /// Handshakes per second, both ends on this thread.
    func handshakes() throws -> Double {
        let count = 1_000
        let own = SecretKey.generate()
        let remote = SecretKey.generate()
        let remoteKey = remote.publicKey
        let time = try microseconds {
            for _ in 0..<count {
                var initiator = try LinkHandshake.initiator(
                    identity: own, remote: remoteKey, ephemeral: SecretKey.generate(), prologue: [0])
                var responder = LinkHandshake.responder(
                    identity: remote, ephemeral: SecretKey.generate(), prologue: [0])
                try responder.read(try initiator.write())
                try initiator.read(try responder.write())
                try responder.read(try initiator.write())
                guard responder.isFinished, initiator.isFinished else { throw Failure("a handshake did not finish") }
            }
        }
        return Double(count) * 1_000_000 / time
    }
}
