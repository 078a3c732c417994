import Messaging

/// Mutates inputs like libFuzzer without coverage, for tests on every machine.
package struct Mutator {
    private var random: Randomness
    private let byteCountLimit: Int
    /// Inputs of the same target for crossover.
    private let corpus: [[UInt8]]

    private static let interesting: [[UInt8]] = [
        [0x00], [0x01], [0x7f], [0x80], [0xff], [0x7f, 0xff], [0x80, 0x00], [0xff, 0xff], [0xff, 0xff, 0xff, 0x7f],
        [0x00, 0x00, 0x00, 0x80], [0xff, 0xff, 0xff, 0xff], [0x7f] + [UInt8](repeating: 0xff, count: 7),
        [0x80] + [UInt8](repeating: 0, count: 7), [UInt8](repeating: 0xff, count: 8),
        [UInt8](repeating: 0xff, count: 9) + [0x01], Array("-1".utf8), Array("9223372036854775808".utf8),
        Array("1e308".utf8), Array("\u{feff}".utf8), Array("👩‍👩‍👧‍👦".utf8), Array("\\ud800".utf8), Array("\u{0}".utf8),
        Array("[[[[[[[[".utf8),
    ]

    package init(seed: UInt64, byteCountLimit: Int, corpus: [[UInt8]]) {
        random = .seeded(seed)
        self.byteCountLimit = byteCountLimit
        self.corpus = corpus
    }

    private mutating func below(_ bound: Int) -> Int { Int(random.next(upperBound: UInt64(max(1, bound)))) }

    package mutating func mutate(_ input: [UInt8]) -> [UInt8] {
        var bytes = input
        for _ in 0..<(1 << below(4)) { change(&bytes) }
        return Array(bytes.prefix(byteCountLimit))
    }

    private mutating func change(_ bytes: inout [UInt8]) {
        let kind = below(10)
        guard !bytes.isEmpty else {
            bytes = Self.interesting[below(Self.interesting.count)]
            return
        }
        let at = below(bytes.count)
        switch kind {
        case 0: bytes[at] ^= 1 << UInt8(below(8))
        case 1: bytes[at] = UInt8(truncatingIfNeeded: below(256))
        case 2: bytes[at] = bytes[at] &+ UInt8(truncatingIfNeeded: 1 + below(35)) &- 18
        case 3: bytes.removeSubrange(at..<min(bytes.count, at + 1 + below(16)))
        case 4: bytes.removeLast(bytes.count - at)
        case 5: bytes.insert(contentsOf: bytes[at..<min(bytes.count, at + 1 + below(32))], at: below(bytes.count))
        case 6, 7:
            let value = Self.interesting[below(Self.interesting.count)]
            if kind == 6 {
                bytes.insert(contentsOf: value, at: at)
            } else {
                bytes.replaceSubrange(at..<min(bytes.count, at + value.count), with: value)
            }
        case 8:
            let other = corpus.isEmpty ? bytes : corpus[below(corpus.count)]
            guard !other.isEmpty else { return }
            let from = below(other.count)
            let part = other[from..<min(other.count, from + 1 + below(64))]
            bytes.replaceSubrange(at..<min(bytes.count, at + part.count), with: part)
        default:
            let other = corpus.isEmpty ? bytes : corpus[below(corpus.count)]
            bytes = Array(bytes[..<at]) + other.dropFirst(below(other.count + 1))
        }
    }
}
