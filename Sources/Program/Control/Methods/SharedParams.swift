import Control

struct ConversationParams: CodableRecord { var conversation = "" }

struct PeerParams: CodableRecord {
    /// As in `peers.json`.
    var name = ""
}

struct MessageParams: CodableRecord {
    /// Id, or a prefix of it.
    var message = ""
}

struct JoinIDParams: CodableRecord {
    /// Id, or a prefix of it.
    var join = ""
}

struct InboxParams: CodableRecord {
    /// Client id, or a prefix of it.
    var inbox = ""
}
