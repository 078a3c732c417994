/// Destroying a conversation everywhere.
package enum ExplodeMethods {
    package static let all: [any ControlMethod.Type] = [ExplodeMethod.self, ExplodeStatusMethod.self]
}

/// Who has destroyed their copy.
package struct ExplosionStatus: Codable, Hashable, Sendable {
    /// Id, in hex.
    package var conversation: String
    /// When everybody destroys it; null when no explosion was ordered.
    @Nullable package var expiresAt: Timestamp?
    /// `none`, `scheduled`, `exploding`, `exploded` or `error`.
    package var state: String
    /// Members that signed a deletion receipt.
    package var confirmed: [String]
    /// Members that have not.
    package var waiting: [String]

    package init(
        conversation: String,
        expiresAt: Timestamp? = nil,
        state: String,
        confirmed: [String],
        waiting: [String]
    ) {
        self.conversation = conversation
        self.expiresAt = expiresAt
        self.state = state
        self.confirmed = confirmed
        self.waiting = waiting
    }
}

/// `explode`: destroys a conversation for everybody, now or at a time.
package enum ExplodeMethod: ControlMethod {
    package static let name = "explode"
    package static let summary = "Destroys a conversation for everybody, now or at a time."
    package typealias Result = ExplosionStatus

    /// What `explode` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String
        /// Now when both are absent.
        package var at: Timestamp?
        package var delay: Interval?
        /// Keep no list of who has not confirmed.
        package var noTrace: Bool?

        package init(conversation: String, at: Timestamp? = nil, delay: Interval? = nil, noTrace: Bool? = nil) {
            self.conversation = conversation
            self.at = at
            self.delay = delay
            self.noTrace = noTrace
        }

        package enum CodingKeys: String, CodingKey {
            case conversation
            case at
            case delay = "in"
            case noTrace
        }
    }
}

/// `explode.status`: tells who has destroyed their copy.
package enum ExplodeStatusMethod: ControlMethod {
    package static let name = "explode.status"
    package static let summary = "Tells who has destroyed their copy."
    package typealias Result = ExplosionStatus

    /// What `explode.status` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String

        package init(conversation: String) {
            self.conversation = conversation
        }
    }
}
