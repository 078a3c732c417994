import Messaging
import Transport

/// Counters for the operator, since the start. All labels are constants of the program, never an id, name or address.
package struct NodeCounters: Sendable {
    package enum MessageEvent: String, CaseIterable, Sendable {
        case made
        /// Our own: sent to a link, or delivered to or read by all members.
        case sent, delivered, read
        /// Our own: not delivered to every member in time, or cancelled.
        case undelivered, cancelled
        case received
        case expired
        /// Files that failed verification.
        case failed
    }

    package enum ConversationEvent: String, CaseIterable, Sendable {
        case joined, joinFailed, memberJoined, memberLeft, agreed, agreementEnded, explosionScheduled, exploded
        case explosionConfirmed
    }

    package struct LinkKind: Hashable, Sendable {
        package enum Carrier: String, CaseIterable, Sendable { case tcp, udp }
        package enum Path: String, CaseIterable, Sendable { case direct, punched, relayed }

        package var carrier: Carrier
        package var path: Path

        package static let all = Carrier.allCases.flatMap { carrier in
            Path.allCases.map { LinkKind(carrier: carrier, path: $0) }
        }
    }

    package private(set) var messages: [MessageEvent: Int] = [:]
    package private(set) var conversations: [ConversationEvent: Int] = [:]
    package private(set) var opened: [LinkKind: Int] = [:]
    package private(set) var closed: [String: Int] = [:]
    /// Sealed bytes of ended links.
    package private(set) var bytesIn: UInt64 = 0
    package private(set) var bytesOut: UInt64 = 0
    package private(set) var failedDials: [String: Int] = [:]
    package private(set) var rejections: [String: Int] = [:]

    mutating func made(count: Int) { messages[.made, default: 0] += count }

    mutating func happened(_ event: Event.Kind) {
        switch event {
        case .message: messages[.received, default: 0] += 1
        case .messageExpired: messages[.expired, default: 0] += 1
        case .messageState(_, let state, _): if let event = MessageEvent(state) { messages[event, default: 0] += 1 }
        case .joined: conversations[.joined, default: 0] += 1
        case .joinFailed: conversations[.joinFailed, default: 0] += 1
        case .memberJoined: conversations[.memberJoined, default: 0] += 1
        case .memberLeft, .memberRemoved: conversations[.memberLeft, default: 0] += 1
        case .lifetimeAgreed: conversations[.agreed, default: 0] += 1
        case .lifetimeReset, .lifetimeSuspended: conversations[.agreementEnded, default: 0] += 1
        case .explosionScheduled: conversations[.explosionScheduled, default: 0] += 1
        case .exploded: conversations[.exploded, default: 0] += 1
        case .deletionReceipt: conversations[.explosionConfirmed, default: 0] += 1
        case .lifetimeProposed, .lifetimeSigned, .lifetimeRejected, .lifetimeWithdrawn, .lifetimeExpired,
            .joinRequested, .joinValidated, .invited, .explosionReminder, .peerOnline, .peerOffline, .locked, .unlocked,
            .messageDelivery, .attachmentProgress, .conversationUpdated, .groupConflict, .removed, .profileChanged,
            .messagesMissed, .twoCopies, .inboxAwake, .inboxAsleep, .codeEnded:
            break
        }
    }

    mutating func opened(_ link: LinkDescription) { opened[link.kind, default: 0] += 1 }

    mutating func closed(_ reason: LinkCloseReason, in bytesIn: UInt64, out bytesOut: UInt64) {
        closed[reason.kind, default: 0] += 1
        self.bytesIn &+= bytesIn
        self.bytesOut &+= bytesOut
    }

    mutating func dialFailed(_ failure: DialFailure) { failedDials[failure.kind, default: 0] += 1 }

    mutating func rejected(_ rejection: Rejection) { rejections[rejection.kind, default: 0] += 1 }
}

extension NodeCounters.LinkKind {
    init(_ link: PeerConnection) {
        self.init(
            carrier: link.carrier == .tcp ? .tcp : .udp,
            path: link.isRelayed ? .relayed : link.isPunched ? .punched : .direct)
    }
}

extension NodeCounters.MessageEvent {
    /// `nil` for states that are counted by another event.
    fileprivate init?(_ state: DeliveryState) {
        guard state != .received else { return nil }
        self.init(rawValue: state == .expiredUndelivered ? Self.undelivered.rawValue : state.rawValue)
    }
}

/// Group commits since the start.
package struct CommitFigures: Sendable {
    package var count = 0
    package var failureCount = 0
    /// From the start of a commit to its end; total and longest.
    package var nanoseconds: Int64 = 0
    package var longestNanoseconds: Int64 = 0

    mutating func ended(isDurable: Bool, after nanoseconds: Int64) {
        if isDurable { count += 1 } else { failureCount += 1 }
        self.nanoseconds += nanoseconds
        longestNanoseconds = max(longestNanoseconds, nanoseconds)
    }
}

extension Rejection {
    /// A switch, since any stranger's datagram is counted: a name by reflection takes 20 times as long.
    var kind: String {
        switch self {
        case .unknownProtocol: "unknownProtocol"
        case .unknownToken: "unknownToken"
        case .timedOut: "timedOut"
        case .tooManyHandshakes: "tooManyHandshakes"
        case .tooManyFromPrefix: "tooManyFromPrefix"
        case .crowdedOut: "crowdedOut"
        case .handshake: "handshake"
        case .wrongPeer: "wrongPeer"
        case .knockTooLong: "knockTooLong"
        case .tooManyKnocks: "tooManyKnocks"
        case .unknownConnection: "unknownConnection"
        case .cookieSent: "cookieSent"
        case .notAuthentic: "notAuthentic"
        case .replayed: "replayed"
        case .disconnected: "disconnected"
        case .shutDown: "shutDown"
        }
    }
}
