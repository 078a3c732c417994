import Glibc

/// Random numbers of a test. The output names the seed; MAYFLY_SEED sets it.
package struct SeededNumbers: RandomNumberGenerator {
    private var state: UInt64

    /// - Parameter test: the name beside the seed.
    package init(_ test: String) {
        let given = getenv("MAYFLY_SEED").flatMap { UInt64(String(cString: $0)) }
        state = given ?? .random(in: 0 ... .max)
        print("\(test): MAYFLY_SEED=\(state)")
    }

    /// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return mixed ^ mixed >> 31
    }
}
