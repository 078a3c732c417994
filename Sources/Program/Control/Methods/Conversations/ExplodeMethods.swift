import Control
import Messaging

/// The members that destroyed their copy.
struct ExplosionStatus: CodableRecord {
    var conversation = ""
    /// Alias on this node; kept sealed for 45 days after the explosion.
    var name: String?
    /// When every member destroys its copy; null without an explosion.
    @OrNull var expiresAt: Timestamp?
    /// `none`, `scheduled`, `exploding`, `exploded` or `error`.
    var state = ""
    /// Members that signed a deletion receipt; while scheduled, members that acknowledged the schedule.
    var confirmed: [String] = []
    /// Members that have not confirmed.
    var waiting: [String] = []
    /// Names as in ``Message/from``; present while the conversation exists.
    var names: [Name]?
    /// Destruction times by the members' own clocks.
    var receipts: [Receipt]?
    /// False when the node keeps no list of members to notify.
    var trace: Bool?
    /// The error in state `error`; the node retries.
    var error: String?

    struct Receipt: CodableRecord {
        var member = ""
        var destroyedAt: Timestamp = Timestamp(milliseconds: 0)
    }

    struct Name: CodableRecord {
        var member = ""
        var name = ""
    }
}

struct ExplodeParams: CodableRecord {
    var conversation = ""
    /// The default is now, without `at` and `in`.
    var at: Timestamp?
    var delay: Interval?
    /// Keep no list of members to notify: offline members learn of the explosion from other members, or never.
    var noTrace: Bool?

    enum CodingKeys: String, CodingKey {
        case conversation, at
        case delay = "in"
        case noTrace
    }
}

struct ExplodeListParams: CodableRecord {
    /// The `next` of the previous answer.
    var from: String?
}

struct ExplodeListResult: CodableRecord {
    /// Ascending by time.
    var explosions: [ExplosionStatus] = []
    /// Present when the answer was cut; pass it as `from`.
    var next: String?
}
