import Control
import Messaging

/// The methods of the control socket, by the names of the commands.
enum Methods {
    static let status = RPCMethod<Nothing, NodeStatus>("status", "Shows the state of the node.")
    static let stop = RPCMethod<Nothing, StopResult>("stop", "Stops the node cleanly.")
    static let lock = RPCMethod<Nothing, Acknowledged>("lock", "Wipes the keys from memory until unlock.")
    /// Unlocks run one at a time, each with a slow key derivation.
    static let unlock = RPCMethod<UnlockParams, Acknowledged>(
        "unlock", "Opens the storage with its passphrase.", waits: { _ in true })
    static let reap = RPCMethod<Nothing, Acknowledged>(
        "reap", "Destroys expired data and conversations that are due to explode.")
    static let version = RPCMethod<Nothing, VersionResult>("version", "Returns the version of the node.")
    static let schema = RPCMethod<Nothing, JSONValue>("schema", "Lists methods, events and failures.")
    static let netcheck = RPCMethod<NetcheckParams, NetcheckResult>(
        "netcheck", "Checks the NAT of this network, and which paths work.", waits: { _ in true })
    static let configReload = RPCMethod<Nothing, ConfigReloadResult>(
        "config.reload", "Reloads config.json and peers.json while the node runs, completely or not at all.")
    static let metrics = RPCMethod<Nothing, MetricsResult>(
        "metrics", "Returns the node's metrics in the Prometheus text format.")
    /// Changes run one at a time, each with a slow key derivation.
    static let passphraseChange = RPCMethod<PassphraseChangeParams, ProtectionResult>(
        "passphrase.change", "Replaces the passphrase; the old one no longer opens the home.", waits: { _ in true })
    /// Changes run one at a time, each with a slow key derivation.
    static let passphraseSet = RPCMethod<PassphraseSetParams, ProtectionResult>(
        "passphrase.set", "Replaces the key file with a passphrase, and destroys the key file.", waits: { _ in true })
    /// Changes run one at a time, each with a slow key derivation.
    static let passphraseDrop = RPCMethod<UnlockParams, ProtectionResult>(
        "passphrase.drop", "Replaces the passphrase with a key file.", waits: { _ in true })
    static let peerAdd = RPCMethod<PeerAddParams, Peer>("peer.add", "Adds a named node by its card or endpoints.")
    static let peerList = RPCMethod<Nothing, PeerListResult>("peer.list", "Lists the named nodes.")
    static let peerShow = RPCMethod<PeerParams, Peer>("peer.show", "Shows one named node.")
    static let peerRemove = RPCMethod<PeerParams, Acknowledged>("peer.remove", "Removes a named node.")
    static let peerPing = RPCMethod<PeerPingParams, Peer>(
        "peer.ping", "Reaches a named node and measures the round trip.", waits: { _ in true })
    static let peerBlock = RPCMethod<PeerParams, Peer>("peer.block", "Refuses pings and invitations from a named node.")
    static let peerUnblock = RPCMethod<PeerParams, Peer>(
        "peer.unblock", "Allows pings and invitations from a named node again.")
    static let peerSet = RPCMethod<PeerSetParams, Peer>("peer.set", "Changes one property of a named node.")
    static let peerCard = RPCMethod<Nothing, PeerCardResult>("peer.card", "Shows this node's contact card.")
    static let peerImport = RPCMethod<PeerImportParams, PeerListResult>(
        "peer.import", "Adds the nodes of a peers file.")
    static let peerExport = RPCMethod<Nothing, PeerExportResult>(
        "peer.export", "Returns the named nodes as a peers file.")
    static let conversationCreate = RPCMethod<ConversationCreateParams, ConversationCreateResult>(
        "conversation.create", "Creates a conversation with its own inbox.")
    static let conversationList = RPCMethod<ListParams, ConversationListResult>(
        "conversation.list", "Lists the conversations.")
    static let conversationShow = RPCMethod<ConversationParams, Conversation>(
        "conversation.show", "Shows one conversation.")
    static let conversationMembers = RPCMethod<ConversationParams, Conversation>(
        "conversation.members", "Lists the members of a conversation.")
    static let conversationLeave = RPCMethod<ConversationParams, Conversation>(
        "conversation.leave", "Leaves a conversation and destroys the local copy.")
    static let conversationLock = RPCMethod<ConversationParams, Conversation>(
        "conversation.lock", "Stops new members from joining and revokes all invitations.")
    static let conversationUnlock = RPCMethod<ConversationParams, Conversation>(
        "conversation.unlock", "Allows joining by new invitations again.")
    static let conversationClose = RPCMethod<ConversationParams, Conversation>(
        "conversation.close", "Closes a conversation on this node and discards its ephemeral messages.")
    static let conversationRename = RPCMethod<ConversationRenameParams, Conversation>(
        "conversation.rename", "Renames a conversation.")
    static let conversationRemove = RPCMethod<ConversationRemoveParams, Conversation>(
        "conversation.remove", "Removes a member and revokes all invitations.")
    static let conversationProfile = RPCMethod<ConversationProfileParams, Conversation>(
        "conversation.profile", "Sets your own name in a conversation.")
    static let conversationAlias = RPCMethod<ConversationAliasParams, Conversation>(
        "conversation.alias", "Sets or removes the local alias of a conversation.")
    static let inviteCreate = RPCMethod<InviteCreateParams, Invite>("invite.create", "Creates an invitation.")
    static let inviteList = RPCMethod<ConversationParams, InviteListResult>(
        "invite.list", "Lists the valid invitations of a conversation.")
    static let inviteRevoke = RPCMethod<InviteRevokeParams, InviteRevokeResult>(
        "invite.revoke", "Revokes one invitation or code of a conversation, or all of them.")
    static let inviteInspect = RPCMethod<InviteInspectParams, Invite>(
        "invite.inspect", "Reads an invitation without using it.")
    static let inviteCode = RPCMethod<InviteCodeParams, InviteCodeResult>(
        "invite.code", "Creates a code to say aloud, which admits one member.", waits: { $0.wait ?? false })
    static let inviteOutcome = RPCMethod<InviteOutcomeParams, InviteOutcomeResult>(
        "invite.outcome", "Waits until a code is used or void, and returns the outcome.", waits: { _ in true })
    static let join = RPCMethod<JoinParams, JoinStatus>(
        "join", "Joins a conversation by an invitation or a code.",
        waits: { ($0.wait ?? true) || SpokenCode.isMeant(by: $0.slug) })
    static let joinList = RPCMethod<Nothing, JoinListResult>(
        "join.list", "Lists the joins in progress and the invitations to answer.")
    static let joinCancel = RPCMethod<JoinIDParams, JoinStatus>(
        "join.cancel", "Cancels a join or declines an invitation.")
    static let joinRetry = RPCMethod<JoinIDParams, JoinStatus>("join.retry", "Dials the creator of a join again now.")
    static let send = RPCMethod<SendParams, SendResult>.send
    static let read = RPCMethod<ReadParams, ReadResult>("read", "Reads messages, oldest first.")
    static let react = RPCMethod<ReactParams, SentMessage>(
        "react", "Adds or removes an emoji reaction.", waits: { $0.wait != nil })
    static let conversationSet = RPCMethod<ConversationSetParams, ConversationSetResult>(
        "conversation.set", "Shows or changes a setting of one conversation, or the default.")
    static let lifetimeShow = RPCMethod<ConversationParams, LifetimeStatus>(
        "lifetime.show", "Shows the lifetime in force and the open proposal.")
    static let lifetimePropose = RPCMethod<LifetimeProposeParams, LifetimeStatus>(
        "lifetime.propose", "Proposes how long messages are kept.")
    static let lifetimeAccept = RPCMethod<LifetimeAcceptParams, LifetimeStatus>(
        "lifetime.accept", "Accepts the open proposal, unless another has replaced it.")
    static let lifetimeReject = RPCMethod<ConversationParams, LifetimeStatus>(
        "lifetime.reject", "Rejects the open proposal.")
    static let lifetimeWithdraw = RPCMethod<ConversationParams, LifetimeStatus>(
        "lifetime.withdraw", "Withdraws your own proposal.")
    static let lifetimePolicy = RPCMethod<LifetimePolicyParams, LifetimePolicy>(
        "lifetime.policy", "Shows or sets the automatic answer to proposals.")
    static let lifetimeCap = RPCMethod<LifetimeCapParams, LifetimeCap>(
        "lifetime.cap", "Shows or sets the maximum lifetime on this node.")
    static let lifetimeAgreements = RPCMethod<LifetimeAgreementsParams, LifetimeAgreementsResult>(
        "lifetime.agreements", "Shows the stored agreements and verifies their signatures.")
    static let explode = RPCMethod<ExplodeParams, ExplosionStatus>(
        "explode", "Destroys a conversation for all members, now or at a set time.")
    static let explodeStatus = RPCMethod<ConversationParams, ExplosionStatus>(
        "explode.status", "Shows which members have confirmed an explosion.")
    static let explodeList = RPCMethod<ListParams, ExplodeListResult>(
        "explode.list", "Lists the explosions of the last 45 days, and scheduled ones.")
    static let outboxList = RPCMethod<OutboxListParams, OutboxListResult>(
        "outbox.list", "Lists messages that are not acknowledged yet.")
    static let outboxCancel = RPCMethod<MessageParams, OutboxEntry>(
        "outbox.cancel", "Cancels an unacknowledged message.")
    static let outboxRetry = RPCMethod<MessageParams, OutboxEntry>(
        "outbox.retry", "Retries an unacknowledged message now.")
    static let inboxList = RPCMethod<Nothing, InboxListResult>("inbox.list", "Lists the inboxes.")
    static let inboxWake = RPCMethod<InboxParams, Inbox>("inbox.wake", "Wakes an inbox.")
    static let inboxSleep = RPCMethod<InboxParams, Inbox>("inbox.sleep", "Puts an inbox to sleep.")
    static let inboxRebalance = RPCMethod<Nothing, InboxRebalanceResult>(
        "inbox.rebalance", "Wakes the most recently active inboxes and puts the others to sleep.")
    static let mailboxStatus = RPCMethod<Nothing, MailboxStatus>(
        "mailbox.status", "Shows the state of this node's mailbox, and of the boxes kept for others.")
    static let subscribe = RPCMethod<SubscribeParams, SubscribeResult>(
        ControlRequest.subscribe, "Starts a stream of events on this connection.", waits: { _ in true })
    static let unsubscribe = RPCMethod<Nothing, Acknowledged>(
        ControlRequest.unsubscribe, "Ends the stream of events of this connection.")
    /// The node drops the upload when the connection closes.
    static let attachmentBegin = RPCMethod<AttachmentBeginParams, AttachmentBeginResult>(
        "attachment.begin", "Begins the upload of a file.", waits: { _ in true })
    static let attachmentAppend = RPCMethod<UploadParams, AttachmentAppendResult>(
        "attachment.append", "Uploads the next bytes of a file: `body` raw bytes follow the line.", takesBody: true)
    static let attachmentCommit = RPCMethod<AttachmentCommitParams, SentMessage>(
        "attachment.commit", "Sends an uploaded file.", waits: { $0.wait != nil })
    static let attachmentCancel = RPCMethod<UploadParams, Acknowledged>(
        "attachment.cancel", "Cancels the upload of a file.")
    static let attachmentRead = RPCMethod<AttachmentReadParams, AttachmentReadResult>(
        "attachment.read", "Reads a chunk of the file of a message.")

    static let all: [any DescribedMethod] = [
        status, stop, lock, unlock, reap, version, schema, netcheck, configReload, metrics, passphraseChange,
        passphraseSet, passphraseDrop, peerAdd, peerList, peerShow, peerRemove, peerPing, peerBlock, peerUnblock,
        peerSet, peerCard, peerImport, peerExport, conversationCreate, conversationList, conversationShow,
        conversationMembers, conversationLeave, conversationLock, conversationUnlock, conversationClose,
        conversationRename, conversationRemove, conversationProfile, conversationAlias, inviteCreate, inviteList,
        inviteRevoke, inviteInspect, inviteCode, inviteOutcome, join, joinList, joinCancel, joinRetry, send, read,
        react, conversationSet, lifetimeShow, lifetimePropose, lifetimeAccept, lifetimeReject, lifetimeWithdraw,
        lifetimePolicy, lifetimeCap, lifetimeAgreements, explode, explodeStatus, explodeList, outboxList, outboxCancel,
        outboxRetry, inboxList, inboxWake, inboxSleep, inboxRebalance, mailboxStatus, subscribe, unsubscribe,
        attachmentBegin, attachmentAppend, attachmentCommit, attachmentCancel, attachmentRead,
    ]

    static func method(named name: String) -> (any DescribedMethod)? { all.first { $0.name == name } }

    /// The machine-readable list of methods, events and failures.
    static var description: JSONValue {
        [
            "methods": .array(all.map { describe($0) }),
            "events": .array(EventKind.allCases.map { .string($0.rawValue) }),
            "eventFields": .object(
                Dictionary(
                    uniqueKeysWithValues: EventKind.allCases.map { kind in
                        (kind.rawValue, .array((EventKind.commonFields + kind.fields).map { .string($0) }))
                    })),
            "failures": .array(
                FailureKind.allCases.map { kind in
                    [
                        "kind": .string(kind.rawValue), "exitCode": .integer(Int64(kind.exitCode)),
                        "code": .integer(kind.rpcCode),
                    ]
                }),
        ]
    }

    /// A router that answers `schema`, and tells methods of this list apart from unknown ones.
    static func router(batch: @escaping @Sendable (_ perform: () -> Void) -> Void = { perform in perform() })
        -> ControlRouter
    {
        var router = ControlRouter(isDescribed: { method(named: $0) != nil }, batch: batch)
        router.on(schema) { call in call.succeed(description) }
        return router
    }

    private static func describe<Method: DescribedMethod>(_ method: Method) -> JSONValue {
        [
            "name": .string(method.name), "summary": .string(method.summary),
            "params": .array(FieldSchema.fields(of: Method.Params.self).map(\.jsonValue)),
            "result": .array(FieldSchema.fields(of: Method.Result.self).map(\.jsonValue)),
        ]
    }
}

extension FieldSchema {
    var jsonValue: JSONValue {
        var value: [String: JSONValue] = ["name": .string(name), "type": .string(type)]
        if isOptional { value["optional"] = true }
        if !values.isEmpty { value["values"] = .array(values.map(JSONValue.string)) }
        if !fields.isEmpty { value["fields"] = .array(fields.map(\.jsonValue)) }
        return .object(value)
    }
}

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
