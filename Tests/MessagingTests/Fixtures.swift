import Cryptography
import Messaging
import TestSupport
import Testing

let noon = Timestamp(milliseconds: 1_750_000_000_000)

func makeKey(_ random: inout Randomness) -> IdentityKey {
    IdentityKey(try! SecretKey(SecretBytes(copying: random.bytes(32))))
}

/// A name that ends with a number.
func numbered<Name: FixedBytes>(_ number: Int) -> Name {
    let end = [UInt8(number >> 8 & 0xff), UInt8(number & 0xff)]
    return Name(unchecked: [UInt8](repeating: 0, count: Name.byteCount - 2) + end)
}

/// Sealed bytes open whole, but not cut at any length, with any byte changed, or with a byte more.
func expectOpensOnlyWhole(
    _ bytes: [UInt8], sourceLocation: SourceLocation = #_sourceLocation, _ opens: ([UInt8]) -> Bool
) {
    #expect(opens(bytes), sourceLocation: sourceLocation)
    for count in 0..<bytes.count {
        #expect(!opens(Array(bytes[..<count])), "cut at \(count)", sourceLocation: sourceLocation)
        var changed = bytes
        changed[count] ^= 1 << (count % 8)
        #expect(!opens(changed), "byte \(count) changed", sourceLocation: sourceLocation)
    }
    #expect(!opens(bytes + [0]), "a byte more", sourceLocation: sourceLocation)
}

extension RelayTerms {
    static let serving: RelayTerms = {
        var terms = RelayTerms()
        terms.isServing = true
        return terms
    }()
}

extension LifetimeTerms {
    static let oneHour = LifetimeTerms(.oneHour)
    static let sixHours = LifetimeTerms(.sixHours)
    static let oneDay = LifetimeTerms(.oneDay)
    static let sevenDays = LifetimeTerms(.sevenDays)
    static let thirtyDays = LifetimeTerms(.thirtyDays)
}

func turn(
    _ random: Randomness, now: Timestamp = noon, isLocked: Bool = false,
    endpoints: [Endpoint] = [Endpoint(host: "a", port: 1)]
) -> Turn { Turn(now: now, random: random, endpoints: endpoints, isLocked: isLocked) }
