import Cryptography

/// The core's random numbers: the operating system's, or a seeded sequence that replays a run.
package enum Randomness: RandomNumberGenerator, Sendable {
    case system
    case seeded(UInt64)

    package mutating func next() -> UInt64 {
        switch self {
        case .system:
            var system = SystemRandomness()
            return system.next()
        case .seeded(let state):
            var numbers = SplitMix64(state: state)
            defer { self = .seeded(numbers.state) }
            return numbers.next()
        }
    }

    /// Several numbers with one request to the operating system.
    package mutating func numbers(_ count: Int) -> [UInt64] {
        switch self {
        case .system: SystemRandomness.numbers(count)
        case .seeded: (0..<count).map { _ in next() }
        }
    }
}
