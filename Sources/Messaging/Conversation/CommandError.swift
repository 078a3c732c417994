/// The kind of a failure: a closed list that determines the exit code of the command line.
package enum FailureKind: String, CaseIterable, Hashable, Sendable {
    /// Any other failure.
    case failed
    /// The request is wrong: unknown method, missing or malformed field.
    case usage
    /// The other side refused: join failed, lifetime rejected.
    case refused
    /// The invitation, message or conversation has expired or exploded.
    case expired
    case timedOut
    case unreachable
    /// The node is locked and needs its passphrase.
    case locked
    /// No such conversation, message, peer, inbox or join.
    case notFound
    /// No node is running in this home.
    case noNode
}

/// Why a command is refused, in words for the user.
package struct CommandError: Error, Hashable, Sendable {
    package let kind: FailureKind
    /// One lower-case phrase without a full stop.
    package let message: String
    /// Advice.
    package let hint: String?
    /// The inbox of a conversation that the node has already.
    package private(set) var client: ClientID?
    /// Time until the rate limit admits the command.
    private(set) var wait: Milliseconds?

    package init(_ kind: FailureKind, _ message: String, _ hint: String? = nil) {
        (self.kind, self.message, self.hint) = (kind, message, hint)
    }
}

extension CommandError {
    package static let unknownConversation = Self(
        .notFound, "no such conversation", "`mayfly conversation list` shows the conversations")
    package static let notJoined = Self(.failed, "the join is still in progress", "`mayfly join list` shows its state")
    package static let notCreator = Self(.failed, "only the conversation's creator may do this", "ask the creator")
    package static let noOtherMember = Self(
        .failed, "the conversation has no other member", "invite someone: `mayfly invite create C`")
    /// A member that must answer has no link to us.
    package static let notConnected = Self(
        .unreachable, "the other member is not connected", "wait for it: `mayfly watch C --until peerOnline`")
    package static let emptyText = Self(.usage, "the text is empty")
    package static let invalidName = Self(.usage, "a name has at least one visible character and no control characters")
    package static let unknownInvite = Self(.notFound, "no such invite")
    package static let conversationLocked = Self(
        .failed, "the conversation is locked", "`mayfly conversation unlock C` first")
    package static let ownInvite = Self(.failed, "this node made this invite", "give it to someone else")
    package static let unknownMessage = Self(.notFound, "no such message in the outbox")
    package static let agreementChanged = Self(.failed, "the agreement changed during the upload", "send it again")
    package static let removed = Self(
        .failed, "you were removed from this conversation",
        "the messages here stay readable until they expire; `mayfly conversation leave C` destroys them now")
    package static let outboxFull = Self(
        .failed, "the outbox is full: \(Limits.outboxCount) messages wait for delivery",
        "`mayfly outbox list` shows them")
    package static let tooManyInvites = Self(
        .failed, "the conversation has \(Limits.inviteCount) open invites already", "revoke some, or let them expire")
    package static let invalidReaction = Self(
        .usage, "a reaction is an emoji or a short text of at most \(Limits.reactionByteCount) bytes")
    package static let fileMemoryFull = Self(
        .failed, "the memory for files without an agreement is full: \(Limits.attachmentMemoryTotalByteCount) bytes",
        "agree on a lifetime first, or close a conversation: `mayfly conversation close OTHER`")
    package static let unknownMember = Self(.notFound, "no such member")

    package static let noProposal = Self(
        .notFound, "there is no such open proposal",
        "`mayfly lifetime show C` shows it: `accept` and `reject` answer another member's, `withdraw` ends your own")
    /// The open proposal is not the one that the user saw.
    package static let otherProposal = Self(
        .failed, "another proposal has arrived meanwhile", "`mayfly lifetime show C` shows it; then accept or reject it"
    )
    package static let alreadyAccepted = Self(
        .failed, "you have accepted the open proposal; it waits for the other members",
        "withdraw your acceptance first: `mayfly lifetime reject C`")
    /// Nothing would be kept, or a time is out of its range.
    package static let invalidTerms = Self(
        .usage, "these terms cannot be proposed", "see `mayfly lifetime propose --help`")

    package static func tooSoon(_ wait: Milliseconds) -> Self {
        var error = Self(.failed, "the rate limit for proposals is reached", "try again in \((wait + 999) / 1_000) s")
        error.wait = wait
        return error
    }

    package static func alreadyAgreed(_ lifetime: Lifetime) -> Self {
        Self(.failed, "\(lifetime.rawValue) is in force already")
    }

    /// This invite has already led into this conversation.
    package static func alreadyMember(_ client: ClientID) -> Self {
        var error = Self(.failed, "this node is already a member of the conversation, or is joining it")
        error.client = client
        return error
    }

    package static func tooLong(_ what: String, _ byteCount: Int, limit: Int, _ hint: String? = nil) -> Self {
        Self(.usage, "the \(what) has \(byteCount) bytes, the limit is \(limit)", hint)
    }

    package static func inviteExpired(_ at: Timestamp) -> Self {
        Self(.expired, "the invite expired at \(at.iso8601)", "ask for a new one")
    }

    package static func inboxProtected(_ protection: InboxProtection) -> Self {
        Self(
            .failed, "the inbox cannot sleep: \(protection)",
            protection.contains(.unread) ? "`mayfly read C` first" : "try again when that has ended")
    }

    package static func invalidContentType(_ text: String) -> Self {
        Self(.usage, "`\(text)` is not a content type", "write it as example.org/poll:1.0")
    }

    package static func reservedContentType(_ authority: String) -> Self {
        Self(
            .usage, "content types of `\(authority)` are reserved for this program",
            "use an authority of yours, such as example.org/poll:1.0")
    }

    package static func fileTooLarge(limit: Int64) -> Self {
        Self(
            .usage, "the file is larger than \(limit) bytes",
            "split it, or raise attachmentByteCount in config.json of both nodes")
    }

    /// Without an agreement a file stays in memory, and memory holds no larger one.
    package static func fileTooLargeForMemory(_ byteCount: Int64) -> Self {
        let (size, most) = (sizeText(byteCount), sizeText(Limits.attachmentMemoryByteCount))
        return Self(
            .failed,
            "the file is \(size == most ? "more than \(size)" : size); without an agreement the limit is \(most)",
            "first: `mayfly lifetime propose C 1d`")
    }
}

/// `3.2 MiB`
package func sizeText(_ byteCount: Int64) -> String {
    if byteCount < 1_024 { return byteCount == 1 ? "1 byte" : "\(byteCount) bytes" }
    var (value, units) = (Double(byteCount) / 1_024, ["KiB", "MiB", "GiB"][...])
    while value >= 1_024, units.count > 1 { (value, units) = (value / 1_024, units.dropFirst()) }
    let tenths = Int64((value * 10).rounded())
    return "\(tenths / 10)\(tenths % 10 == 0 ? "" : ".\(tenths % 10)") \(units.first ?? "")"
}
