import Cryptography
import Glibc

/// Random numbers of a test. The output names the seed; MAYFLY_SEED sets it.
package struct SeededNumbers: RandomNumberGenerator {
    private var numbers: SplitMix64

    /// - Parameter test: the name beside the seed.
    package init(_ test: String) {
        let given = getenv("MAYFLY_SEED").flatMap { UInt64(String(cString: $0)) }
        let seed = given ?? .random(in: 0 ... .max)
        numbers = SplitMix64(state: seed)
        print("\(test): MAYFLY_SEED=\(seed)")
    }

    package mutating func next() -> UInt64 { numbers.next() }
}
