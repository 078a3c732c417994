/// A fixed number of bytes, held inline: comparing, hashing and copying them allocates nothing.
///
/// The bytes are read as big-endian words, so that words and bytes have the same order. The hash covers all bytes,
/// under keys of the process, so a peer cannot choose colliding names.
package protocol InlineBytes: Hashable, Comparable, Sendable, BitwiseCopyable {
    static var byteCount: Int { get }
    /// - Precondition: `source` has ``byteCount`` bytes.
    init(copying source: UnsafeRawBufferPointer)
    /// - Precondition: `target` has room for ``byteCount`` bytes.
    func copy(to target: UnsafeMutableRawBufferPointer)
}

extension InlineBytes {
    /// `nil` unless there are exactly ``byteCount`` bytes.
    package init?(_ bytes: some Sequence<UInt8>) {
        let copied: Self?? = bytes.withContiguousStorageIfAvailable { buffer -> Self? in
            buffer.count == Self.byteCount ? Self(copying: UnsafeRawBufferPointer(buffer)) : nil
        }
        if let copied {
            guard let copied else { return nil }
            self = copied
            return
        }
        let bytes = Array(bytes)
        guard bytes.count == Self.byteCount else { return nil }
        self = bytes.withUnsafeBytes { Self(copying: $0) }
    }

    /// A copy on the heap.
    package var bytes: [UInt8] {
        [UInt8](unsafeUninitializedCapacity: Self.byteCount) { buffer, count in
            copy(to: UnsafeMutableRawBufferPointer(buffer))
            count = Self.byteCount
        }
    }

    package func append(to bytes: inout [UInt8]) {
        withUnsafeTemporaryAllocation(byteCount: Self.byteCount, alignment: 8) { buffer in
            copy(to: buffer)
            bytes.append(contentsOf: buffer)
        }
    }
}

extension UnsafeRawBufferPointer {
    /// The big-endian word at a byte offset.
    @inline(__always) fileprivate func word(at offset: Int) -> UInt64 {
        UInt64(bigEndian: loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }
}

extension UnsafeMutableRawBufferPointer {
    @inline(__always) fileprivate func store(_ word: UInt64, at offset: Int) {
        storeBytes(of: word.bigEndian, toByteOffset: offset, as: UInt64.self)
    }
}

/// Drawn once per process.
private struct HashKeys {
    let first: UInt64
    let second: UInt64
    let third: UInt64
    /// Odd, so that the last product loses no bits.
    let fourth: UInt64

    static let ofProcess: HashKeys = {
        var random = SystemRandomNumberGenerator()
        return HashKeys(first: random.next(), second: random.next(), third: random.next(), fourth: random.next() | 1)
    }()
}

package struct Bytes16: InlineBytes {
    package static let byteCount = 16
    package let first: UInt64
    package let second: UInt64

    package init(_ first: UInt64, _ second: UInt64) {
        self.first = first
        self.second = second
    }

    package init(copying source: UnsafeRawBufferPointer) {
        precondition(source.count == Self.byteCount)
        first = source.word(at: 0)
        second = source.word(at: 8)
    }

    package func copy(to target: UnsafeMutableRawBufferPointer) {
        target.store(first, at: 0)
        target.store(second, at: 8)
    }

    /// The hash of dictionaries: two multiplications, since SipHash takes most of a look-up of so short a key. Each
    /// folds a 128-bit product under a secret key of this process.
    package func _rawHashValue(seed: Int) -> Int {
        let keys = HashKeys.ofProcess
        let mixed = Self.fold(first ^ keys.first ^ UInt64(bitPattern: Int64(seed)), second ^ keys.second)
        return Int(truncatingIfNeeded: Self.fold(mixed ^ keys.third, keys.fourth))
    }

    @inline(__always) private static func fold(_ left: UInt64, _ right: UInt64) -> UInt64 {
        let product = left.multipliedFullWidth(by: right)
        return product.high ^ product.low
    }

    package static func < (left: Self, right: Self) -> Bool {
        left.first != right.first ? left.first < right.first : left.second < right.second
    }
}

package struct Bytes32: InlineBytes {
    package static let byteCount = 32
    package let left: Bytes16
    package let right: Bytes16

    package init(copying source: UnsafeRawBufferPointer) {
        precondition(source.count == Self.byteCount)
        left = Bytes16(source.word(at: 0), source.word(at: 8))
        right = Bytes16(source.word(at: 16), source.word(at: 24))
    }

    package func copy(to target: UnsafeMutableRawBufferPointer) {
        left.copy(to: target)
        right.copy(to: UnsafeMutableRawBufferPointer(rebasing: target[16...]))
    }

    package static func < (one: Self, other: Self) -> Bool {
        one.left != other.left ? one.left < other.left : one.right < other.right
    }

    package func _rawHashValue(seed: Int) -> Int { right._rawHashValue(seed: left._rawHashValue(seed: seed)) }
}

/// A compressed curve point: sign and x coordinate.
package struct Bytes33: InlineBytes {
    package static let byteCount = 33
    package let head: UInt8
    package let tail: Bytes32

    package init(copying source: UnsafeRawBufferPointer) {
        precondition(source.count == Self.byteCount)
        head = source[0]
        tail = Bytes32(copying: UnsafeRawBufferPointer(rebasing: source[1...]))
    }

    package func copy(to target: UnsafeMutableRawBufferPointer) {
        target[0] = head
        tail.copy(to: UnsafeMutableRawBufferPointer(rebasing: target[1...]))
    }

    package static func < (left: Self, right: Self) -> Bool {
        left.head != right.head ? left.head < right.head : left.tail < right.tail
    }

    package func hash(into hasher: inout Hasher) { hasher.combine(tail) }
    package func _rawHashValue(seed: Int) -> Int { tail._rawHashValue(seed: seed) }
}
