import Cryptography
import Messaging

extension Randomness {
    package mutating func roll(_ bound: Int64) -> Int64 { Int64(next(upperBound: UInt64(max(1, bound)))) }
    package mutating func chance(_ percent: Int64) -> Bool { roll(100) < percent }
    package mutating func one<Element>(of elements: [Element]) -> Element { elements[Int(roll(Int64(elements.count)))] }
}

/// Draws everything from one seed. The order of the draws is part of what a seed means.
package protocol Drawing: AnyObject { var dice: Randomness { get set } }

extension Drawing {
    package func roll(_ bound: Int64) -> Int64 { dice.roll(bound) }
    package func chance(_ percent: Int64) -> Bool { dice.chance(percent) }
    package func one<Element>(of elements: [Element]) -> Element { dice.one(of: elements) }
    package func pick<Element>(_ elements: [Element]) -> Element? { elements.isEmpty ? nil : dice.one(of: elements) }
}

extension LifetimeCap {
    /// Most nodes have no cap.
    package static let drawn: [LifetimeCap] = [
        .none, .none, .none, .none, .none, .none, .atMost(.oneHour), .atMost(.ephemeral),
    ]
    /// The choices of users for a conversation; `nil`: their node's.
    package static let set: [LifetimeCap?] = [
        nil, LifetimeCap.none, .atMost(.oneDay), .atMost(.oneHour), .atMost(.ephemeral),
    ]
}
