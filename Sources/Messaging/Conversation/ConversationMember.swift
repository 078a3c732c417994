import Crypto

/// One other member as a conversation holds it: the way to it, and what we owe each other.
struct ConversationMember: Sendable {
    var link: LinkStateMachine
    var outbox = OutboxStateMachine()
    /// What we said on the link in use; `nil` while there is none.
    var sessionSent: SessionStart?
    /// Both have said where they stand on the link in use.
    var isEstablished = false
    /// What watchers were told last; a link that takes the place of another is not news.
    var isShownOnline = false
    /// The member has retired the link in use, for it has another one. If that has not opened here by then, the member
    /// is away.
    var movesUntil: Timestamp?
    /// The session has ended (restart, close): the next link starts with a reset.
    var hasEnded: Bool
    /// What it has asked for of our files.
    var serving = AttachmentSenderStateMachine()
    /// When what it has asked for counts as stalled, unless it takes some; `nil` once it does.
    var stallsAt: Timestamp?
    /// What we have read of it and it has not heard yet, and how many of these, the first, were said over the link in use.
    var readReceipts: [MessageID] = []
    var saidReceiptCount = 0
    /// Something was said to it, or would have been over a link, and it has not shown that it heard it.
    var owesWord = false
    /// The ping that follows what was said last over the link in use: its pong shows that all of it was heard.
    var wordPing: UInt64?
    var profileBucket = TokenBucket(interval: Limits.profileInterval, burst: Limits.profileBurst)
    /// The newest description that came faster than the rate limit allows: it is taken over when the limit allows it.
    var laterDescription: Member?
    /// Frames of it that did not verify.
    var forgeries = TokenBucket(interval: Limits.forgeryInterval, burst: Limits.forgeryBurst)
    /// Frames of it that changed nothing, over whatever link: a new one does not begin anew.
    var idleFrames = IdleFrames.member
    /// It is not heard before this time.
    var shunnedUntil: Timestamp?
    var heard = HeardPlaces()
    var runs = RunNumbers()
    var punching: PunchStateMachine

    init(_ member: Member, own: PublicKey, hasEnded: Bool, now: Timestamp) {
        link = LinkStateMachine(own: own, remote: member.key, isDialable: !member.endpoints.isEmpty, now: now)
        self.hasEnded = hasEnded
        punching = PunchStateMachine(offers: own < member.key)
    }

    /// The link in use, once both have said on it where they stand.
    var establishedLink: LinkID? { isEstablished ? link.link : nil }

    /// There is something for it, for which a sleeping member is dialled and a sleeping inbox is woken.
    var hasNews: Bool { !outbox.isEmpty || owesWord || !readReceipts.isEmpty }

    func isShunned(now: Timestamp) -> Bool { shunnedUntil.map { now < $0 } ?? false }

    /// A file is under way to it. One of which it takes nothing does not count.
    var isTaking: Bool { isEstablished && !serving.isIdle && stallsAt != nil }

    /// When something is due with this member; `nil` for never.
    var nextDeadline: Timestamp? {
        var earliest = link.nextDeadline
        let description = laterDescription == nil ? nil : profileBucket.readyAt
        for deadline in [
            outbox.nextDeadline, punching.nextDeadline, serving.isIdle ? nil : stallsAt, description, movesUntil,
        ] { if let deadline { earliest = min(earliest ?? deadline, deadline) } }
        return earliest
    }

    /// The link in use is gone, or another has taken its place: what was on it goes again.
    mutating func linkLost() {
        punching.linkChanged()
        outbox.linkLost()
        serving.linkLost()
        (saidReceiptCount, wordPing) = (0, nil)
        isEstablished = false
        movesUntil = nil
    }

    /// Something is said to it now.
    mutating func noteWord() { (owesWord, wordPing) = (true, nil) }

    /// It has heard all that was said over the link in use.
    mutating func heardWord() {
        (owesWord, wordPing) = (false, nil)
        readReceipts.removeFirst(saidReceiptCount)
        saidReceiptCount = 0
    }

    /// No link is wanted for its own sake.
    mutating func rest() {
        link.rest()
        outbox.rest()
        // A sleeping inbox forgets the description, so no deadline may wake it for that.
        laterDescription = nil
    }

    /// A message of ours is not waited for any more.
    /// - Returns: whether it was.
    mutating func settle(_ message: MessageID) -> Bool {
        guard outbox.cancel(message) else { return false }
        serving.remove(message)
        return true
    }
}

/// Frames of members that came to nothing.
struct FrameTally: Hashable, Sendable {
    /// Floods, forgeries, repeats.
    var dropped = 0
    /// Of those, frames whose signature did not hold.
    var forged = 0

    /// Counts a signature that does not hold.
    mutating func holds(_ isValid: Bool) -> Bool {
        if !isValid {
            dropped += 1
            forged += 1
        }
        return isValid
    }
}

/// The names of a conversation in actions and events.
struct ConversationNames: Hashable, Sendable {
    let client: ClientID
    let conversation: ConversationID

    func event(_ kind: Event.Kind, _ turn: Turn) -> NodeAction {
        .notify(Event(client: client, conversation: conversation, at: turn.now, kind: kind))
    }

    /// The same has happened to all of these messages.
    func events(_ happening: MessageEvents.Happening, _ messages: [MessageID], _ turn: Turn) -> NodeAction {
        .notifyMessages(
            MessageEvents(
                client: client, conversation: conversation, at: turn.now, messages: messages, happening: happening))
    }
}
