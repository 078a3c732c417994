import Control
import Glibc
import Messaging
import NIOCore
import NodeRuntime
import Primitives
import Store
import Transport

/// The node's values as the command line's contract has them.
enum NodeView {
    static func timestamp(_ time: Messaging.Timestamp) -> Control.Timestamp {
        Control.Timestamp(milliseconds: time.milliseconds)
    }

    /// Short name of a member: the beginning of its inbox id.
    static func member(_ key: PublicKey) -> String { String(InboxID(key).description.prefix(12)) }

    static func status(_ node: isolated Node, hooks: HookRunner? = nil) -> NodeStatus {
        let status = node.status()
        var checks: [HealthCheck] = [
            HealthCheck(
                name: "erasure",
                state: status.erasure.erasure == .bestEffort ? .warning : .ok,
                message: "\(status.erasure.erasure.rawValue): \(status.erasure.reason)"
            )
        ]
        if status.isReadOnly {
            checks.append(HealthCheck(name: "home", state: .failed, message: "read-only", hint: "mount it writable"))
        }
        if let trouble = status.storageTrouble {
            checks.append(
                HealthCheck(name: "disk", state: .failed, message: "\(trouble)", hint: trouble.advice)
            )
        }
        for damage in status.damage {
            checks.append(
                HealthCheck(name: "store", state: .warning, message: "damaged: \(damage)", hint: "check the disk")
            )
        }
        for failure in node.withoutDatagrams {
            checks.append(
                HealthCheck(
                    name: "UDP",
                    state: .warning,
                    message: "links over TCP alone: \(failure.reason)",
                    hint: "free the port for UDP, or choose another with `mayfly run --listen`"
                )
            )
        }
        for name in node.missingInterfaces {
            checks.append(
                HealthCheck(
                    name: "LAN discovery",
                    state: .warning,
                    message: "there is no interface \(name) with an address now",
                    hint: "see `ip link` for their names"
                )
            )
        }
        checks += node.rendezvousStandings().map(rendezvousCheck)
        checks += (portMappings(node) ?? []).map(portMappingCheck)
        return NodeStatus(
            running: true,
            version: node.options.version,
            pid: Int(getpid()),
            home: node.options.home,
            listen: node.listening.map(\.description),
            locked: status.isLocked,
            erasure: status.erasure.erasure.rawValue,
            protection: status.protection == .keyFile ? "key file" : "passphrase",
            inboxes: InboxCounts(awake: status.awake, sleeping: status.sleeping, unused: status.unused),
            links: status.links,
            outbox: status.outbox,
            nextExpiry: status.nextExpiry.map(timestamp),
            checks: checks,
            hooks: hooks?.counts,
            discovery: node.discovery,
            rendezvous: node.relayService.map { RendezvousCounts($0.counts, $0.terms) },
            portMappings: portMappings(node)
        )
    }

    static func peer(_ peer: PeersFile.Peer, _ seen: PeerSighting?) -> Peer {
        Peer(
            name: peer.name,
            endpoints: peer.allEndpoints.map(\.description),
            contact: peer.contact?.description,
            blocked: peer.isBlocked,
            invitations: peer.invitationPolicy.rawValue,
            lastSeen: seen.map { timestamp($0.at) },
            path: seen?.path?.kind.rawValue,
            rttMs: seen.map { rounded($0.rttMilliseconds) },
            link: seen?.path.map(link),
            rendezvous: peer.isRendezvous
        )
    }

    private static func link(_ path: LinkPath) -> Link {
        let isIPv6 = if case .v6 = path.address { true } else { false }
        return Link(
            transport: path.transport,
            family: isIPv6 ? "ipv6" : "ipv4",
            address: path.address.ipAddress ?? "",
            since: timestamp(path.openedAt),
            rttMs: path.rttMilliseconds.map(rounded),
            bytesIn: Int64(clamping: path.bytesIn),
            bytesOut: Int64(clamping: path.bytesOut)
        )
    }

    static func rounded(_ milliseconds: Double) -> Double { (milliseconds * 1_000).rounded() / 1_000 }

    static func conversation(_ machine: ConversationStateMachine, _ node: isolated Node) -> Conversation {
        let paths = node.paths(of: machine)
        return Conversation(
            conversation: machine.conversation.description,
            name: machine.record.name,
            role: machine.isCreator ? "creator" : "member",
            members: machine.currentMembers.map { one in
                let isOnline = machine.isOnline(one.key)
                return Control.Member(
                    member: member(one.key),
                    profile: one.profile,
                    online: isOnline,
                    path: isOnline ? paths[one.key]?.kind.rawValue : nil,
                    link: isOnline ? paths[one.key].map(link) : nil
                )
            },
            lifetime: LifetimeValue(machine.lifetime),
            expiresAt: machine.record.schedule.map { timestamp($0.expiresAt) },
            locked: machine.record.group.isLocked,
            state: machine.record.isRemoved ? "removed" : machine.record.schedule == nil ? "ready" : "scheduled",
            inbox: machine.client.description
        )
    }

    // MARK: Joins

    static func slug(_ text: String, _ node: isolated Node) throws(NodeError) -> String {
        // An invitation of a peer may be named by its id.
        let matches = node.invitations().filter { $0.id.description.hasPrefix(text.lowercased()) }
        return matches.count == 1 && text.utf8.count >= 4 ? matches[0].slug : text
    }

    static func invitation(_ invitation: Node.ReceivedInvitation) -> JoinStatus {
        let from = invitation.from ?? "a node that is not in peers.json"
        let name = invitation.name.map { " to \"\($0)\"" } ?? ""
        return JoinStatus(
            join: invitation.id.description,
            state: .invited,
            message: "\(from) invites you\(name); accept: mayfly join \(invitation.id.description.prefix(12))",
            startedAt: timestamp(invitation.receivedAt)
        )
    }

    static func join(_ client: ClientID, _ node: isolated Node) -> JoinStatus {
        if let ended = endedJoin(client, node) { return ended }
        guard let join = (try? node.joins())?.first(where: { $0.client == client }) else {
            return JoinStatus(join: client.description, state: .cancelled)
        }
        return JoinStatus(
            join: client.description,
            state: .joining,
            inviteTag: join.record.invite.tag.description,
            startedAt: timestamp(join.record.startedAt),
            expiresAt: timestamp(join.record.startedAt + Limits.joinLifetime),
            attempts: join.attempts,
            nextAttempt: join.nextAttempt.map(timestamp)
        )
    }

    /// How a join has ended; `nil` while it goes on.
    static func endedJoin(_ client: ClientID, _ node: isolated Node) -> JoinStatus? {
        switch node.joinOutcome(client) {
        case nil: return nil
        case .success(let machine):
            return JoinStatus(join: client.description, state: .ready, conversation: machine.conversation.description)
        case .failure(.joinFailed(let type)):
            let tag = (try? node.joins())?.first { $0.client == client }?.record.invite.tag.description
            return JoinStatus(
                join: client.description,
                state: .joinFailed,
                inviteTag: tag,
                errorType: type.rawValue,
                title: type.userFacingTitle,
                message: type.userFacingMessage
            )
        case .failure: return JoinStatus(join: client.description, state: .cancelled)
        }
    }

    static func issuedInvite(
        _ issued: IssuerStateMachine.IssuedInvite,
        _ conversation: ConversationStateMachine
    ) -> Control.Invite {
        // The join secret was not kept, so the text cannot be shown again.
        Control.Invite(
            slug: nil,
            url: nil,
            invite: issued.id.description,
            tag: issued.tag.description,
            expiresAt: timestamp(min(issued.expiresAt, conversation.record.schedule?.expiresAt ?? .latest)),
            singleUse: issued.singleUse,
            creator: InboxID(conversation.key.publicKey).description,
            lifetime: LifetimeValue(conversation.lifetime),
            signature: .valid,
            name: conversation.record.name,
            admitted: issued.admitted.count
        )
    }

    // MARK: Messages

    static func from(_ message: Messaging.Message, _ conversation: ConversationStateMachine) -> String {
        if message.content.type == .systemMessage { return "system" }
        guard let sender = message.sender else { return "me" }
        return conversation.record.members.first { $0.key == sender }?.profile ?? member(sender)
    }

    /// A message ends with its conversation, if not before.
    static func end(
        of message: Messaging.Message,
        _ conversation: ConversationStateMachine?
    ) -> Messaging.Timestamp? {
        [message.expiresAt, conversation?.record.schedule?.expiresAt].compactMap { $0 }.min()
    }

    /// The answer to `send`, once the message has come as far as asked.
    static func sentMessage(
        _ id: Messaging.MessageID,
        _ client: ClientID,
        until stage: DeliveryStage,
        _ node: isolated Node
    ) -> Result<SendMethod.Result, any Error>? {
        guard let read = node.message(id, client: client) else {
            return .failure(ControlError(.expired, "message \(id) has expired or its conversation has exploded"))
        }
        let state: DeliveryStage
        switch read.message.state {
        case .queued, .received: state = .queued
        case .sent: state = .sent
        case .delivered, .read: state = .delivered
        case .receiving: state = .queued
        case .failed:
            return .failure(
                ControlError(
                    .refused,
                    "a member did not take the file of message \(id)",
                    hint: "it is larger than that member takes, or did not arrive as it was sent"
                )
            )
        case .expiredUndelivered: return .failure(ControlError(.expired, "message \(id) expired undelivered"))
        case .cancelled: return .failure(ControlError(.failed, "message \(id) was cancelled"))
        }
        let reached =
            switch stage {
            case .queued: true
            case .sent: state != .queued
            case .delivered: state == .delivered
            }
        guard reached else { return nil }
        return .success(
            SendMethod.Result(
                message: id.description,
                state: state,
                stored: read.isStored,
                expiresAt: end(of: read.message, try? node.conversation(client.description)).map(timestamp)
            )
        )
    }

    static func outbox(_ item: Node.OutboxItem) -> OutboxEntry {
        OutboxEntry(
            message: item.entry.message.description,
            conversation: item.conversation.conversation.description,
            to: item.conversation.record.members.first { $0.key == item.member }?.profile ?? member(item.member),
            attempts: item.entry.attempts,
            nextAttempt: item.entry.nextAttempt.map(timestamp),
            expiresAt: timestamp(
                min(item.entry.deadline, item.conversation.record.schedule?.expiresAt ?? .latest)
            ),
            state: item.entry.state.rawValue
        )
    }

    // MARK: Lifetime and explosion

    static func lifetime(_ text: String, _ node: isolated Node) throws(NodeError) -> LifetimeStatus {
        let machine = try node.conversation(text)
        return LifetimeStatus(
            conversation: machine.conversation.description,
            lifetime: LifetimeValue(machine.lifetime),
            state: machine.pendingProposal != nil ? .pending : machine.agreement != nil ? .agreed : .none,
            proposal: proposal(of: machine),
            agreement: machine.agreement.map { agreement($0, machine) }
        )
    }

    /// Of a conversation that has exploded.
    static func explosion(_ record: ExplodeStateMachine.Record, _ node: isolated Node) -> ExplosionStatus {
        var status = ExplosionStatus(
            conversation: record.conversation.description,
            expiresAt: timestamp(record.explodedAt),
            state: "exploded",
            confirmed: record.members.filter { record.confirmed[$0] != nil }.map(member),
            waiting: ExplodeStateMachine(record: record).waiting.map(member),
            receipts: record.members.compactMap { key in
                record.confirmed[key].map {
                    ExplosionStatus.Receipt(member: member(key), destroyedAt: timestamp($0))
                }
            },
            trace: !record.isTraceless
        )
        switch node.progress(of: record.conversation) {
        case .exploded: break
        case .exploding: status.state = "exploding"
        case .failed(let failure):
            status.state = "error"
            status.error = "the keys could not be destroyed yet: \(failure)"
        }
        return status
    }

    /// Of a conversation that is still there.
    static func explosion(_ machine: ConversationStateMachine) -> ExplosionStatus {
        guard let schedule = machine.record.schedule else {
            return ExplosionStatus(
                conversation: machine.conversation.description,
                state: "none",
                confirmed: [],
                waiting: []
            )
        }
        let members = machine.currentMembers.map(\.key)
        return ExplosionStatus(
            conversation: machine.conversation.description,
            expiresAt: timestamp(schedule.expiresAt),
            state: "scheduled",
            confirmed: members.filter(schedule.confirmed.contains).map(member),
            waiting: members.filter { !schedule.confirmed.contains($0) }.map(member),
            trace: machine.isCreator ? !schedule.isTraceless : nil
        )
    }

    // MARK: Events

    static func event(_ entry: EventLog.Entry, _ node: isolated Node) -> Control.Event {
        let (kind, details) = describe(entry.event, node)
        var all = details
        if let client = entry.event.client { all["inbox"] = .string(client.description) }
        return Control.Event(
            cursor: entry.cursor,
            event: kind,
            conversation: entry.event.conversation?.description,
            at: timestamp(entry.event.at),
            details: all
        )
    }

    private static func describe(
        _ event: Messaging.Event,
        _ node: isolated Node
    ) -> (EventKind, [String: JSONValue]) {
        func text(_ value: some CustomStringConvertible) -> JSONValue { .string(value.description) }
        switch event.kind {
        case .message(let id):
            // What cannot be read any more is not shown here either.
            guard let client = event.client, let read = node.message(id, client: client),
                let conversation = try? node.conversation(client.description),
                case .object(let details)? = try? JSONValue(encoding: message(read, conversation, node))
            else { return (.message, ["message": text(id)]) }
            return (.message, details)
        case .messageState(let id, let state, let stored):
            var details: [String: JSONValue] = ["message": text(id), "state": .string(state.rawValue)]
            if let stored { details["stored"] = .bool(stored) }
            return (.messageState, details)
        case .messageExpired(let id): return (.messageExpired, ["message": text(id)])
        case .lifetimeProposed(let terms, let ours, let id):
            return (
                .lifetimeProposed,
                details(terms).merging(["ours": .bool(ours), "proposal": text(id)]) { $1 }
            )
        case .lifetimeAgreed(let terms, let id, let automatic):
            return (
                .lifetimeAgreed,
                details(terms).merging(["agreement": text(id), "automatic": .bool(automatic)]) { $1 }
            )
        case .lifetimeRejected(let id, let reason):
            return (.lifetimeRejected, ["proposal": text(id), "reason": .string(reason.rawValue)])
        case .lifetimeWithdrawn(let id): return (.lifetimeWithdrawn, ["proposal": text(id)])
        case .lifetimeExpired(let id): return (.lifetimeExpired, ["proposal": text(id)])
        case .lifetimeReset(let previous): return (.lifetimeReset, ["previous": .string(previous.rawValue)])
        case .memberJoined(let key, let profile):
            return (.memberJoined, ["member": .string(member(key)), "profile": profile.map { .string($0) } ?? .null])
        case .memberLeft(let key): return (.memberLeft, ["member": .string(member(key))])
        case .joinRequested(let key): return (.joinRequested, ["member": .string(member(key))])
        case .joined: return (.joined, [:])
        case .joinFailed(let type, let tag):
            return (
                .joinFailed,
                [
                    "errorType": .string(type.rawValue), "inviteTag": text(tag),
                    "title": .string(type.userFacingTitle),
                    "message": .string(type.userFacingMessage),
                ]
            )
        case .invited(let id, _):
            let from = node.invitations().first { $0.id == id }?.from
            return (.invited, ["join": text(id), "from": from.map { .string($0) } ?? .null])
        case .exploded: return (.exploded, [:])
        case .explosionScheduled(let at):
            return (.explosionScheduled, ["expiresAt": .string(timestamp(at).iso8601)])
        case .explosionReminder(let at):
            return (.explosionReminder, ["expiresAt": .string(timestamp(at).iso8601)])
        case .deletionReceipt(let key): return (.deletionReceipt, ["member": .string(member(key))])
        case .peerOnline(let key): return (.peerOnline, ["member": .string(member(key))])
        case .peerOffline(let key): return (.peerOffline, ["member": .string(member(key))])
        case .locked: return (.locked, [:])
        case .unlocked: return (.unlocked, [:])
        case .messageDelivery(let id, let key, let state):
            return (
                .messageDelivery,
                ["message": text(id), "member": .string(member(key)), "state": .string(state.rawValue)]
            )
        case .attachmentProgress(let id, let key, let count, let total):
            let percent = total == 0 ? 100 : count * 100 / total
            return (
                .attachmentProgress,
                ["message": text(id), "member": .string(member(key)), "percent": .integer(Int64(percent))]
            )
        case .conversationUpdated(let name, let isLocked):
            return (.conversationUpdated, ["name": name.map { .string($0) } ?? .null, "locked": .bool(isLocked)])
        case .memberRemoved(let key): return (.memberRemoved, ["member": .string(member(key))])
        case .removed: return (.removed, [:])
        case .profileChanged(let key, let profile):
            return (.profileChanged, ["member": .string(member(key)), "profile": profile.map { .string($0) } ?? .null])
        case .messagesMissed(let key, let count):
            return (.messagesMissed, ["member": .string(member(key)), "count": .integer(Int64(clamping: count))])
        case .inboxAwake(let reason): return (.inboxAwake, ["wakeReason": .string(reason.rawValue)])
        case .inboxAsleep: return (.inboxAsleep, [:])
        case .lifetimeSuspended(let previous):
            return (.lifetimeSuspended, ["previous": .string(previous.rawValue)])
        }
    }
}

extension LifetimeValue {
    /// Both lists are the specification's.
    init(_ lifetime: Lifetime) {
        switch lifetime {
        case .ephemeral: self = .ephemeral
        case .oneHour: self = .oneHour
        case .sixHours: self = .sixHours
        case .oneDay: self = .oneDay
        case .sevenDays: self = .sevenDays
        case .thirtyDays: self = .thirtyDays
        }
    }
}

extension Lifetime {
    init(_ value: LifetimeValue) {
        switch value {
        case .ephemeral: self = .ephemeral
        case .oneHour: self = .oneHour
        case .sixHours: self = .sixHours
        case .oneDay: self = .oneDay
        case .sevenDays: self = .sevenDays
        case .thirtyDays: self = .thirtyDays
        }
    }
}

extension Control.Invite {
    init(_ verified: VerifiedInvite, slug: String) {
        let invite = verified.invite
        let bare = slug.hasPrefix("mayfly:join/") ? String(slug.dropFirst("mayfly:join/".count)) : slug
        self.init(
            slug: "mayfly:join/" + bare,
            url: "mayfly:join/" + bare,
            invite: invite.id.description,
            tag: invite.tag.description,
            expiresAt: NodeView.timestamp(invite.expiresAt),
            singleUse: invite.singleUse,
            creator: invite.creator.description,
            lifetime: LifetimeValue(invite.lifetime),
            signature: .valid,
            conversationExpiresAt: invite.conversationExpiresAt.map(NodeView.timestamp),
            name: invite.name,
            about: invite.description
        )
    }
}
