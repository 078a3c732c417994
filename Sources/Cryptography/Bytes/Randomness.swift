import CSodium

/// The operating system's random generator.
package struct SystemRandomness: RandomNumberGenerator, Sendable {
    package init() {}

    package mutating func next() -> UInt64 {
        var value: UInt64 = 0
        randombytes_buf(&value, MemoryLayout<UInt64>.size)
        return value
    }

    /// Several numbers with one call of the generator.
    package static func numbers(_ count: Int) -> [UInt64] {
        Sodium.start()
        return [UInt64](unsafeUninitializedCapacity: count) { buffer, initialized in
            if count > 0 { randombytes_buf(buffer.baseAddress!, count * MemoryLayout<UInt64>.stride) }
            initialized = count
        }
    }
}

extension RandomNumberGenerator {
    package mutating func bytes(_ count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(count + 7)
        while bytes.count < count { withUnsafeBytes(of: next().littleEndian) { bytes.append(contentsOf: $0) } }
        bytes.removeLast(bytes.count - count)
        return bytes
    }
}

/// `count` bytes of the operating system's generator in one call.
package func randomBytes(_ count: Int) -> [UInt8] {
    Sodium.start()
    return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
        if count > 0 { randombytes_buf(buffer.baseAddress!, count) }
        initialized = count
    }
}

/// Into the caller's memory.
package func fillRandomly(_ buffer: UnsafeMutableRawBufferPointer) {
    Sodium.start()
    if let base = buffer.baseAddress { randombytes_buf(base, buffer.count) }
}

/// A seeded generator (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Not for secrets.
package struct SplitMix64: RandomNumberGenerator, Hashable, Sendable {
    package private(set) var state: UInt64

    package init(state: UInt64) { self.state = state }

    package mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }
}
