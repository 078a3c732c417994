/// Destroying a conversation everywhere.
package enum ExplodeMethods {
    package static let all: [any ControlMethod.Type] = [
        ExplodeMethod.self, ExplodeStatusMethod.self, ExplodeListMethod.self,
    ]
}

/// Who has destroyed their copy.
package struct ExplosionStatus: Codable, Hashable, Sendable {
    /// Id, in hex.
    package var conversation: String
    /// When everybody destroys it; null when no explosion was ordered.
    @Nullable package var expiresAt: Timestamp?
    /// `none`, `scheduled`, `exploding`, `exploded` or `error`.
    package var state: String
    /// Members that signed a deletion receipt; while it is scheduled, members that have shown that they know.
    package var confirmed: [String]
    /// Members that have not.
    package var waiting: [String]
    /// What the members are called, as in ``Message/from``; present while the conversation is there.
    package var names: [Name]?
    /// When those that have confirmed destroyed their copy, by their own clocks.
    package var receipts: [Receipt]?
    /// False when no list is kept of whom to tell.
    package var trace: Bool?
    /// What goes wrong, in state `error`; it is tried again.
    package var error: String?

    /// A member's word that its copy is gone.
    package struct Receipt: Codable, Hashable, Sendable {
        package var member: String
        package var destroyedAt: Timestamp

        package init(member: String, destroyedAt: Timestamp) {
            self.member = member
            self.destroyedAt = destroyedAt
        }
    }

    /// A member's id and its name.
    package struct Name: Codable, Hashable, Sendable {
        package var member: String
        package var name: String

        package init(member: String, name: String) {
            self.member = member
            self.name = name
        }
    }

    package init(
        conversation: String,
        expiresAt: Timestamp? = nil,
        state: String,
        confirmed: [String],
        waiting: [String],
        names: [Name]? = nil,
        receipts: [Receipt]? = nil,
        trace: Bool? = nil,
        error: String? = nil
    ) {
        self.conversation = conversation
        self.expiresAt = expiresAt
        self.state = state
        self.confirmed = confirmed
        self.waiting = waiting
        self.names = names
        self.receipts = receipts
        self.trace = trace
        self.error = error
    }
}

/// `explode`: destroys a conversation for everybody, now or at a time.
package enum ExplodeMethod: ControlMethod {
    package static let name = "explode"
    package static let summary = "Destroys a conversation for everybody, now or at a time."
    package typealias Result = ExplosionStatus

    /// What `explode` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String
        /// Now when both are absent.
        package var at: Timestamp?
        package var delay: Interval?
        /// Keep no list of whom to tell: members that are offline learn it from others, or never.
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
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String

        package init(conversation: String) {
            self.conversation = conversation
        }
    }
}

/// `explode.list`: lists the conversations that have exploded, as long as the node remembers them, and the scheduled
/// explosions.
package enum ExplodeListMethod: ControlMethod {
    package static let name = "explode.list"
    package static let summary = "Lists what has exploded in the last 45 days, and scheduled explosions."

    /// What `explode.list` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// The `next` of the answer that this one goes on from.
        package var from: String?

        package init(from: String? = nil) {
            self.from = from
        }
    }

    /// What `explode.list` answers.
    package struct Result: Codable, Hashable, Sendable {
        /// By their time, the earliest first.
        package var explosions: [ExplosionStatus]
        /// Present when the answer was cut: ask again from it.
        package var next: String?

        package init(explosions: [ExplosionStatus], next: String? = nil) {
            self.explosions = explosions
            self.next = next
        }
    }
}
