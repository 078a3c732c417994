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
        let client = event.client
        switch event.kind {
        case .joined: self.init(.info, "joined", client, members)
        case .joinValidated: self.init(.info, "join waits for the user's agreement", client, members)
        case .joinFailed(let type, _): self.init(.info, "join failed", client, ["kind": "\(type.rawValue)"])
        case .joinRequested: self.init(.debug, "join admitted", client)
        case .invited: self.init(.info, "invitation received", client)
        case .memberJoined: self.init(.info, "member joined", client, members)
        case .memberLeft: self.init(.info, "member left", client, members)
        case .memberRemoved: self.init(.info, "member removed", client, members)
        case .removed: self.init(.info, "removed by the creator", client)
        case .lifetimeAgreed(let terms, _, let automatic):
            self.init(
                .info, "agreement began", client,
                ["lifetime": "\(terms.lifetime.rawValue)", "automatic": "\(automatic)"])
        case .lifetimeReset(let previous):
            self.init(.info, "agreement ended", client, ["lifetime": "\(previous.rawValue)"])
        case .lifetimeSuspended(let previous):
            self.init(.info, "agreement suspended", client, ["lifetime": "\(previous.rawValue)"])
        case .lifetimeProposed(let terms, let ours, _):
            self.init(
                .debug, "lifetime proposed", client, ["lifetime": "\(terms.lifetime.rawValue)", "ours": "\(ours)"])
        case .lifetimeSigned: self.init(.debug, "proposal signed", client, members)
        case .lifetimeRejected(_, let reason):
            self.init(.debug, "proposal rejected", client, ["reason": "\(reason.rawValue)"])
        case .lifetimeWithdrawn: self.init(.debug, "proposal withdrawn", client)
        case .lifetimeExpired: self.init(.debug, "proposal expired", client)
        case .explosionScheduled(let at): self.init(.info, "explosion scheduled", client, ["at": "\(at.iso8601)"])
        case .explosionReminder(let at): self.init(.debug, "explosion is near", client, ["at": "\(at.iso8601)"])
        case .exploded: self.init(.info, "exploded", client)
        case .deletionReceipt:
            let confirmed = counts.confirmed ?? (0, 0)
            self.init(
                .info, "explosion confirmed", client, ["confirmed": "\(confirmed.count)", "of": "\(confirmed.of)"])
        case .locked: self.init(.info, "locked", client)
        case .unlocked: self.init(.info, "unlocked", client)
        case .peerOnline: self.init(.debug, "member online", client)
        case .peerOffline: self.init(.debug, "member offline", client)
        case .inboxAwake(let reason): self.init(.debug, "inbox awake", client, ["reason": "\(reason.rawValue)"])
        case .inboxAsleep: self.init(.debug, "inbox asleep", client)
        case .codeEnded(_, let outcome): self.init(.info, "code ended", client, ["outcome": "\(outcome.rawValue)"])
        case .conversationUpdated(_, let isLocked):
            self.init(.debug, "conversation updated", client, ["locked": "\(isLocked)"])
        case .groupConflict: self.init(.notice, "the creator has signed two states of one version", client)
        case .profileChanged: self.init(.debug, "profile changed", client)
        case .twoCopies(_, ours: true): self.init(.warning, "a member reports two copies of this home", client)
        case .twoCopies(_, ours: false): self.init(.warning, "two copies of a member's home run at once", client)
        case .messagesMissed(_, let count): self.init(.debug, "messages missed", client, ["count": "\(count)"])
        case .message: self.init(.trace, "message", client)
        case .messageState(_, let state, _): self.init(.trace, "message state", client, ["state": "\(state.rawValue)"])
        case .messageDelivery(_, _, let state):
            self.init(.trace, "message delivery", client, ["state": "\(state.rawValue)"])
        case .messageExpired: self.init(.trace, "message expired", client)
        case .attachmentProgress(_, _, let count, let total):
            self.init(.trace, "file progress", client, ["count": "\(count)", "of": "\(total)"])
        }
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
