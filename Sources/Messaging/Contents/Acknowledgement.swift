/// A receiver's answer to contents: at most ``Limits/acknowledgementCount`` in one frame.
package struct Acknowledgement: Hashable, Sendable, Codable {
    /// Durable at the receiver.
    package var stored: [MessageID]
    /// Held in the receiver's memory.
    package var held: [MessageID]
    /// Expired on arrival: the receiver has never shown them, and keeps nothing.
    package var expired: [MessageID]

    package init(stored: [MessageID] = [], held: [MessageID] = [], expired: [MessageID] = []) {
        (self.stored, self.held, self.expired) = (stored, held, expired)
    }

    package var count: Int { stored.count + held.count + expired.count }
    package var isEmpty: Bool { stored.isEmpty && held.isEmpty && expired.isEmpty }

    /// - Returns: `false`, with nothing added, when both together exceed one frame.
    package mutating func merge(_ other: Acknowledgement) -> Bool {
        guard count + other.count <= Limits.acknowledgementCount else { return false }
        stored += other.stored
        held += other.held
        expired += other.expired
        return true
    }
}
