import Control

enum JoinStage: String, JSONChoice, Hashable, Sendable {
    /// A peer sent an invitation; `mayfly join` accepts it.
    case invited
    /// Like `validated`, defined by the protocol but never answered: the node checks an invite without waiting.
    case validating
    case validated
    case joining
    case ready
    case joinFailed
    case cancelled
}

struct JoinStatus: CodableRecord {
    var join = ""
    var state: JoinStage = .invited
    /// Present when ready.
    var conversation: String?
    /// Alias on this node; present when ready, unless there is none.
    var alias: String?
    /// The creator's name for the conversation; present when ready or invited, unless it has no name.
    var name: String?
    /// The named peer that sent the invitation; present when invited by one.
    var from: String?
    var inviteTag: String?
    /// Present when failed: `conversation_expired`, `single_use_consumed` or `generic_failure`.
    var errorType: String?
    /// Short text for a person; present when failed.
    var title: String?
    /// Sentence for a person; present when failed.
    var message: String?
    var startedAt: Timestamp?
    /// When the join gives up.
    var expiresAt: Timestamp?
    /// Dials to the creator since the node started; present while joining.
    var attempts: Int?
    /// When the node next dials the creator; present while joining, absent during a dial.
    var nextAttempt: Timestamp?
}

struct JoinParams: CodableRecord {
    /// An invite link with or without `mayfly:join/`, the id of a received invitation, or a spoken code.
    var slug = ""
    /// Our name, as the members see it.
    var profile: String?
    /// Absent means 60 s.
    var timeout: Interval?
    /// False answers at once. Absent means true.
    var wait: Bool?
    /// Alias on this node. Absent means the conversation's name, with a number appended if it is in use.
    var alias: String?
    /// Address of the code's issuer: HOST, HOST:PORT or tcp://HOST:PORT. Absent means this network.
    var at: String?

    enum CodingKeys: String, CodingKey {
        case slug
        case profile = "as"
        case timeout, wait, alias, at
    }
}

struct JoinListResult: CodableRecord { var joins: [JoinStatus] = [] }
