import Cryptography
import Foundation

/// A case of `Vectors/bolt8.txt`: the vectors of BOLT 8, appendix A, in the order of their use.
struct BOLT8Case: Sendable, CustomStringConvertible {
    enum Step: Equatable, Sendable {
        case input([UInt8])
        case output([UInt8])
        /// The appendix's name for the refusal of the last input.
        case error(String)
        case keys(sending: [UInt8], receiving: [UInt8])
        /// The sealed `hello` of this number.
        case message(Int, [UInt8])
    }

    let name: String
    var values: [String: [UInt8]] = [:]
    var steps: [Step] = []
    var description: String { name }

    func secretKey(_ name: String) throws -> SecretKey { try SecretKey(secret(name)) }
    func publicKey(_ name: String) throws -> PublicKey { try PublicKey(values[name] ?? []) }
    func secret(_ name: String) throws -> SecretBytes {
        guard let bytes = values[name] else { throw CocoaError(.coderValueNotFound) }
        return SecretBytes(copying: bytes)
    }

    static let all: [BOLT8Case] = {
        var cases: [BOLT8Case] = []
        for line in vectorFile("bolt8.txt").split(separator: "\n") {
            let line = line.trimmingPrefix(while: \.isWhitespace)
            if line.hasPrefix("#") { continue }
            guard let mark = line.firstIndex(where: { $0 == ":" || $0 == "=" }) else { continue }
            let value = line[line.index(after: mark)...].trimmingPrefix(while: \.isWhitespace)
            let key = line[..<mark]
            if key == "name" {
                cases.append(BOLT8Case(name: String(value)))
            } else {
                cases[cases.count - 1].add(key, value)
            }
        }
        return cases
    }()

    static func starting(_ prefix: String) -> [BOLT8Case] { all.filter { $0.name.hasPrefix(prefix) } }

    private mutating func add(_ key: Substring, _ value: Substring) {
        switch key {
        case "input": steps.append(.input(hex(value)))
        case "output" where value.hasPrefix("ERROR"): steps.append(.error(String(value)))
        case "output" where value.contains("="):
            let keys = value.drop { $0 != "=" }.dropFirst().split(separator: ",").map { hex($0) }
            let sendsFirst = value.hasPrefix("sk")
            steps.append(.keys(sending: keys[sendsFirst ? 0 : 1], receiving: keys[sendsFirst ? 1 : 0]))
        case "output": steps.append(.output(hex(value)))
        case _ where key.hasPrefix("output "):
            steps.append(.message(Int(key.dropFirst("output ".count)) ?? -1, hex(value)))
        default: values[String(key)] = hex(value)
        }
    }
}

func hex(_ text: some StringProtocol) -> [UInt8] {
    Hex.decode(text.hasPrefix("0x") ? text.dropFirst(2) : text[...]) ?? []
}

func vectorFile(_ name: String) -> String {
    let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Vectors")
    return (try? String(contentsOf: folder.appending(path: name), encoding: .utf8)) ?? ""
}
