import Cryptography
import Messaging

/// A failed check of a target, besides traps, hangs and memory use.
package struct FuzzFailure: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}

/// A decoder or machine with input from outside. ``run`` must return for any bytes; the target catches its own
/// refusals.
package struct FuzzTarget: Sendable {
    /// Name of the corpus directory, and of `make fuzz TARGET=…`.
    package let name: String
    /// Longest useful input in bytes.
    package let byteCountLimit: Int
    /// Approximate cost of an input relative to a small decoder.
    package let cost: Int
    package let seeds: @Sendable () throws -> [[UInt8]]
    /// - Throws: ``FuzzFailure``.
    package let run: @Sendable ([UInt8]) throws -> Void
    /// Modules or folders under test, with those below them. Earlier runs of an input count while these are unchanged.
    package private(set) var modules: [String] = []

    /// Called after the common beginning of every input, such as a handshake, so that a fuzzer ignores its coverage.
    /// Set once, before the first input.
    nonisolated(unsafe) package static var preludeEnded: @Sendable () -> Void = {}

    init(
        _ name: String, byteCountLimit: Int = 4_096, cost: Int = 1, seeds: @escaping @Sendable () throws -> [[UInt8]],
        run: @escaping @Sendable ([UInt8]) throws -> Void
    ) { (self.name, self.byteCountLimit, self.cost, self.seeds, self.run) = (name, byteCountLimit, cost, seeds, run) }

    init(
        _ name: String, byteCountLimit: Int, cost: Int = 1,
        seeds: @autoclosure @escaping @Sendable () throws -> [[UInt8]],
        run: @escaping @Sendable ([UInt8]) throws -> Void
    ) { self.init(name, byteCountLimit: byteCountLimit, cost: cost, seeds: seeds, run: run) }

    /// Every target except the canaries.
    package static let all: [FuzzTarget] =
        of(core, wireTargets) + of(control, textTargets) + of(crypto, handshakeTargets) + of(transport, linkTargets)
        + of(control, controlTargets) + of(runtime, homeTargets) + of(core, storedTargets)
        + of(["Store"] + crypto, storeTargets) + of(core, coreTargets) + of(datagrams, datagramTargets)
        + of(discovery + crypto, discoveryTargets)
        + of(["Transport/PortMapping"] + discovery + crypto, portMappingTargets) + of(core + discovery, codeTargets)
        + of(core, mailboxTargets + mailedTargets)

    private static let crypto = ["Cryptography"]
    private static let discovery = ["Transport/LAN/Discovery"]
    private static let datagrams = ["Transport/Datagrams", "Transport/Links"] + crypto
    private static let transport = ["Transport"] + crypto
    private static let core = ["Messaging"] + crypto
    private static let control = ["Control", "Program/Methods"] + core
    private static let runtime = ["NodeRuntime", "Store", "Messaging"] + transport

    private static func of(_ modules: [String], _ targets: [FuzzTarget]) -> [FuzzTarget] {
        targets.map { target in
            var target = target
            target.modules = modules
            return target
        }
    }

    /// An input as text.
    package static func digits(_ input: [UInt8]) -> String { Hex.encode(input) }

    package static func named(_ name: String) -> FuzzTarget? {
        (all + [.canary, .memoryCanary]).first { $0.name == name }
    }
}

func expect(_ condition: Bool, _ description: @autoclosure () -> String) throws {
    if !condition { throw FuzzFailure(description()) }
}

/// A value that was read must read back from what it is written as.
func comesBack<Value: Equatable>(_ value: Value?, _ read: (Value) throws -> Value?) throws {
    guard let value else { return }
    let again = try? read(value)
    try expect(again == value, "\(value) comes back as \(again as Any)")
}

extension FuzzTarget {
    /// A decoder with a planted defect behind four magic bytes: a fuzzer that misses it does not work.
    package static let canary = FuzzTarget("canary", byteCountLimit: 64, seeds: [Array("MFLY".utf8) + [3, 1, 2, 3]]) {
        bytes in
        guard bytes.starts(with: Array("MFLY".utf8)), bytes.count > 5 else { return }
        let count = Int(bytes[4])
        guard count <= bytes.count - 4, count > 0 else { return }
        try expect(4 + count < bytes.count, "reads byte \(4 + count) of \(bytes.count)")
    }

    /// Reads one byte past the end of its allocation, which only a sanitizer detects. Never run it without one.
    package static let memoryCanary = FuzzTarget("memory-canary", byteCountLimit: 64, seeds: [[0]]) { bytes in
        let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: 64)
        defer { memory.deallocate() }
        memory.update(repeating: 1, count: 64)
        try expect(memory[64 + bytes.count / 1_000] != memory[bytes.count % 64] &+ 1, "")
    }
}

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
