import Cryptography
import Glibc
import Messaging

/// An input read as a script of small numbers and byte runs. Past its end all values are zero.
struct FuzzInput {
    private let bytes: [UInt8]
    private var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var isAtEnd: Bool { position >= bytes.count }
    var rest: [UInt8] { isAtEnd ? [] : Array(bytes[position...]) }

    mutating func byte() -> UInt8 {
        guard position < bytes.count else { return 0 }
        defer { position += 1 }
        return bytes[position]
    }

    /// A number below `bound`, from one byte or two.
    mutating func index(below bound: Int) -> Int {
        guard bound > 1 else { return 0 }
        return bound <= 256 ? Int(byte()) % bound : Int(short()) % bound
    }

    mutating func one<Element>(of list: [Element]) -> Element { list[index(below: list.count)] }

    mutating func short() -> UInt16 { UInt16(byte()) << 8 | UInt16(byte()) }

    /// Eight bytes, or, by the first byte, a number that overflows sums and products.
    mutating func number() -> UInt64 {
        switch byte() {
        case 0: return 0
        case 1: return 1
        case 2: return .max
        case 3: return .max - 1
        case 4: return UInt64(Int64.max)
        case 5: return UInt64(Int64.max) + 1
        case 6: return 1 << 62
        case 7: return UInt64(UInt32.max)
        case 8: return UInt64(byte())
        case 9: return UInt64(short())
        default: return (0..<8).reduce(0) { value, _ in value << 8 | UInt64(byte()) }
        }
    }

    /// Up to 65,535, mostly short, because long runs are slow.
    mutating func length() -> Int {
        let value = Int(byte()) + 1
        return value << Int(byte() % 9) - 1
    }

    mutating func signed() -> Int64 { Int64(bitPattern: number()) }
    mutating func time() -> Timestamp { Timestamp(milliseconds: signed()) }

    /// A run whose length is one byte, or two when `isLong`.
    mutating func run(isLong: Bool = false) -> [UInt8] { take(isLong ? Int(short()) : Int(byte())) }

    mutating func take(_ count: Int) -> [UInt8] {
        let end = min(bytes.count, position + count)
        guard position < end else { return [] }
        defer { position = end }
        return Array(bytes[position..<end])
    }

    /// Replaces up to three bytes.
    mutating func change(_ bytes: inout [UInt8]) {
        for _ in 0..<Int(byte() % 4) where !bytes.isEmpty {
            let at = Int(short()) % bytes.count
            bytes[at] = byte()
        }
    }

    mutating func text() -> String { String(decoding: run(), as: UTF8.self) }

    /// Seed of the generators, from the script alone.
    static func seed(of bytes: [UInt8]) -> UInt64 {
        bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    }
}

/// How much work an input may cause. A fuzzer derives it from the bytes, so that it is reproducible: few inputs run
/// slow operations, and ten times as many inputs run in all. Without a fuzzer there are few inputs, and each may do
/// everything.
enum FuzzPatience {
    /// Everything, however slow: one input in 64.
    case long
    /// All kinds of operations in quick amounts: three in 64.
    case middling
    case short

    init(_ bytes: [UInt8]) {
        #if FUZZING
            // Upper bits: those of a product depend on all bits of its factors.
            switch (FuzzInput.seed(of: bytes) &* 0x9e37_79b9_7f4a_7c15) >> 58 {
            case 0: self = .long
            case 1, 2, 3: self = .middling
            default: self = .short
            }
        #else
            self = .long
        #endif
    }
}

struct FuzzScript {
    var bytes: [UInt8] = []

    init(_ bytes: [UInt8] = []) { self.bytes = bytes }

    func byte(_ values: Int...) -> FuzzScript { FuzzScript(bytes + values.map { UInt8(truncatingIfNeeded: $0) }) }
    func short(_ value: Int) -> FuzzScript { byte(value >> 8).byte(value) }
    /// A length that ``FuzzInput/length()`` reads: one less than a number below 257, doubled `times` times.
    func length(_ value: Int, doubled times: Int) -> FuzzScript { byte(value - 1).byte(times) }
    func number(_ value: UInt64) -> FuzzScript {
        FuzzScript(bytes + [255] + (0..<8).reversed().map { UInt8(truncatingIfNeeded: value >> (8 * UInt64($0))) })
    }
    func run(_ value: [UInt8], isLong: Bool = false) -> FuzzScript {
        let head = isLong ? short(value.count) : byte(value.count)
        return FuzzScript(head.bytes + value)
    }
}

/// Compares two frames without a branch per byte, which the fuzzer would trace.
func areSame(_ left: [UInt8]?, _ right: [UInt8]) -> Bool {
    guard let left, left.count == right.count else { return false }
    return left.withUnsafeBytes { left in
        right.withUnsafeBytes { right in
            guard let first = left.baseAddress, let second = right.baseAddress else { return true }
            return memcmp(first, second, left.count) == 0
        }
    }
}

enum FuzzKeys {
    static func key(_ number: UInt8) -> IdentityKey {
        guard let secret = try? SecretKey(SecretBytes(copying: [UInt8](repeating: number, count: 32))) else {
            preconditionFailure("32 equal bytes other than 0 and 255 are a key")
        }
        return IdentityKey(secret)
    }

    static let ann = key(0x11)
    static let bob = key(0x22)
    static let cid = key(0x33)
    static let all = [ann, bob, cid]
}
