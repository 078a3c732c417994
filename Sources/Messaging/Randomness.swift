import Crypto

/// The core's random numbers: the operating system's, or a seeded sequence that replays a run.
package enum Randomness: RandomNumberGenerator, Sendable {
    case system
    /// SplitMix64 (Steele, Lea and Flood, 2014).
    case seeded(UInt64)

    package mutating func next() -> UInt64 {
        switch self {
        case .system:
            var system = SystemRandomness()
            return system.next()
        case .seeded(var state):
            state &+= 0x9e37_79b9_7f4a_7c15
            self = .seeded(state)
            var value = state
            value = (value ^ (value >> 30)) &* 0xbf58_476d_1ce4_e5b9
            value = (value ^ (value >> 27)) &* 0x94d0_49bb_1331_11eb
            return value ^ (value >> 31)
        }
    }
}
