import Cryptography
import Logging
import Messaging
import Transport

/// Occurrences for the log, beyond the events that users watch.
enum Occurrence {
    case conversationCreated(ClientID)
    case joinBegan(ClientID)
    case inboxLeft(ClientID)
    case linkOpened(ClientID, LinkDescription)
    case linkClosed(ClientID, LinkDescription, LinkCloseReason)
    case dialFailed(ClientID, DialFailure)
    /// Since the previous line, over all links of an inbox.
    case acknowledged(ClientID, AcknowledgementCounts)
    /// - Parameter number: the peer's position among the rendezvous nodes of `peers.json`, from 1.
    case rendezvous(number: Int, RelayReservationStateMachine.Standing?)
    case mailed(ClientID, slotCount: Int, isComplete: Bool)
    /// - Parameter counts: of the inbox or of the explosion.
    case event(Event, EventCounts)
}

/// A link without addresses and keys.
struct LinkDescription {
    let kind: NodeCounters.LinkKind
    let isOurs: Bool

    init(_ connection: PeerConnection) {
        kind = NodeCounters.LinkKind(connection)
        isOurs = connection.role == .initiator
    }

    fileprivate var metadata: Logger.Metadata {
        ["transport": "\(kind.carrier)", "path": "\(kind.path)", "dialled": "\(isOurs)"]
    }
}

struct AcknowledgementCounts: Equatable {
    var sent = 0
    var received = 0
}

struct EventCounts {
    /// Members of the conversation, ourselves included; `nil` without a conversation.
    var members: Int?
    /// Received receipts of an explosion, out of its members.
    var confirmed: (count: Int, of: Int)?
}

/// A log line. It contains no identifier but an inbox's clientId: no name, text, address, key, nor id of a
/// conversation, inbox, message or proposal.
struct LogLine {
    let level: Logger.Level
    let text: Logger.Message
    var metadata: Logger.Metadata

    private init(_ level: Logger.Level, _ text: Logger.Message, _ client: ClientID?, _ more: Logger.Metadata = [:]) {
        self.level = level
        self.text = text
        metadata = more
        if let client { metadata["client"] = "\(client)" }
    }

    init(_ occurrence: Occurrence) {
        switch occurrence {
        case .conversationCreated(let client): self.init(.info, "conversation created", client)
        case .joinBegan(let client): self.init(.info, "join began", client)
        case .inboxLeft(let client): self.init(.info, "conversation left", client)
        case .linkOpened(let client, let link): self.init(.debug, "link up", client, link.metadata)
        case .linkClosed(let client, let link, let reason):
            self.init(
                .debug, "link down", client, link.metadata.merging(["reason": "\(reason.kind)"]) { one, _ in one })
        case .dialFailed(let client, let failure): self.init(.debug, "dial failed", client, ["kind": "\(failure.kind)"])
        case .acknowledged(let client, let counts):
            self.init(.debug, "acknowledgements", client, ["sent": "\(counts.sent)", "received": "\(counts.received)"])
        case .rendezvous(let number, let standing):
            let state = standing?.kind ?? (kind: "unused", isTrouble: true)
            self.init(
                state.isTrouble ? .notice : .info, "rendezvous node", nil,
                ["number": "\(number)", "state": "\(state.kind)"])
        case .mailed(let client, let slotCount, let isComplete):
            self.init(.debug, isComplete ? "mailed" : "not mailed", client, ["slots": "\(slotCount)"])
        case .event(let event, let counts): self.init(event, counts)
        }
    }

    private init(_ event: Event, _ counts: EventCounts) {
        let members: Logger.Metadata = counts.members.map { ["members": "\($0)"] } ?? [:]
        let confirmed = counts.confirmed ?? (0, 0)
        let line: (level: Logger.Level, text: Logger.Message, metadata: Logger.Metadata) =
            switch event.kind {
            case .joined: (.info, "joined", members)
            case .joinValidated: (.info, "join waits for the user's agreement", members)
            case .joinFailed(let type, _): (.info, "join failed", ["kind": "\(type.rawValue)"])
            case .joinRequested: (.debug, "join admitted", [:])
            case .invited: (.info, "invitation received", [:])
            case .memberJoined: (.info, "member joined", members)
            case .memberLeft: (.info, "member left", members)
            case .memberRemoved: (.info, "member removed", members)
            case .removed: (.info, "removed by the creator", [:])
            case .lifetimeAgreed(let terms, _, let automatic):
                (.info, "agreement began", ["lifetime": "\(terms.lifetime.rawValue)", "automatic": "\(automatic)"])
            case .lifetimeReset(let previous): (.info, "agreement ended", ["lifetime": "\(previous.rawValue)"])
            case .lifetimeSuspended(let previous): (.info, "agreement suspended", ["lifetime": "\(previous.rawValue)"])
            case .lifetimeProposed(let terms, let ours, _):
                (.debug, "lifetime proposed", ["lifetime": "\(terms.lifetime.rawValue)", "ours": "\(ours)"])
            case .lifetimeSigned: (.debug, "proposal signed", members)
            case .lifetimeRejected(_, let reason): (.debug, "proposal rejected", ["reason": "\(reason.rawValue)"])
            case .lifetimeWithdrawn: (.debug, "proposal withdrawn", [:])
            case .lifetimeExpired: (.debug, "proposal expired", [:])
            case .explosionScheduled(let at): (.info, "explosion scheduled", ["at": "\(at.iso8601)"])
            case .explosionReminder(let at): (.debug, "explosion is near", ["at": "\(at.iso8601)"])
            case .exploded: (.info, "exploded", [:])
            case .deletionReceipt:
                (.info, "explosion confirmed", ["confirmed": "\(confirmed.count)", "of": "\(confirmed.of)"])
            case .locked: (.info, "locked", [:])
            case .unlocked: (.info, "unlocked", [:])
            case .peerOnline: (.debug, "member online", [:])
            case .peerOffline: (.debug, "member offline", [:])
            case .inboxAwake(let reason): (.debug, "inbox awake", ["reason": "\(reason.rawValue)"])
            case .inboxAsleep: (.debug, "inbox asleep", [:])
            case .codeEnded(_, let outcome): (.info, "code ended", ["outcome": "\(outcome.rawValue)"])
            case .conversationUpdated(_, let isLocked): (.debug, "conversation updated", ["locked": "\(isLocked)"])
            case .groupConflict: (.notice, "the creator has signed two states of one version", [:])
            case .profileChanged: (.debug, "profile changed", [:])
            case .twoCopies(_, ours: true): (.warning, "a member reports two copies of this home", [:])
            case .twoCopies(_, ours: false): (.warning, "two copies of a member's home run at once", [:])
            case .messagesMissed(_, let count): (.debug, "messages missed", ["count": "\(count)"])
            case .message: (.trace, "message", [:])
            case .messageState(_, let state, _): (.trace, "message state", ["state": "\(state.rawValue)"])
            case .messageDelivery(_, _, let state): (.trace, "message delivery", ["state": "\(state.rawValue)"])
            case .messageExpired: (.trace, "message expired", [:])
            case .attachmentProgress(_, _, let count, let total):
                (.trace, "file progress", ["count": "\(count)", "of": "\(total)"])
            }
        self.init(line.level, line.text, event.client, line.metadata)
    }
}

extension LinkCloseReason {
    package var kind: String {
        switch self {
        case .silent, .rekeyOverdue: "connectionLost"
        default: caseName(of: self)
        }
    }
}

extension DialFailure { var kind: String { caseName(of: self) } }

/// The name of an enumeration's case, without associated values.
private func caseName(of value: some Hashable) -> String { String("\(value)".prefix { $0 != "(" }) }

extension RelayReservationStateMachine.Standing {
    fileprivate var kind: (kind: String, isTrouble: Bool) {
        switch self {
        case .unreachable: ("unreachable", true)
        case .asking: ("asking", false)
        case .reserved: ("reserved", false)
        case .refused(let refusal): ("refused \(refusal.map { "\($0)" } ?? "by silence")", true)
        }
    }
}

/// The state last logged for a rendezvous node.
struct RendezvousNote {
    /// A node that has just started or lost its link is not reported yet.
    static let patience: Milliseconds = 30 * .second

    var seen: RelayReservationStateMachine.Standing?
    var since: Timestamp
    var told: String?

    /// - Returns: whether to log the state.
    mutating func take(_ standing: RelayReservationStateMachine.Standing?, now: Timestamp) -> Bool {
        if seen != standing {
            seen = standing
            since = now
        }
        let isSettled =
            switch standing {
            case .asking: false
            case nil, .unreachable: now - since >= Self.patience
            case .reserved, .refused: true
            }
        let kind = standing?.kind.kind ?? "unused"
        guard isSettled, told != kind else { return false }
        told = kind
        return true
    }
}
