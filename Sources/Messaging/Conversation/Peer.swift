import Cryptography

/// One other member of a conversation: its link, outbox and rate limits.
final class Peer {
    let key: PublicKey
    var link: LinkStateMachine
    var outbox = OutboxStateMachine()
    /// The session start that we sent on the link in use; `nil` without one, and once the member's has arrived.
    var sessionSent: SessionStart?
    /// Both session starts have been exchanged on the link in use.
    var isEstablished = false
    /// Whether the last event said `peerOnline`. A link that replaces another sends no event.
    var isShownOnline = false
    /// The member closed the link in use for a newer one. If that has not opened here by then, the member is offline.
    var movesUntil: Timestamp?
    /// The session has ended (restart, close): the next link starts with a reset.
    var hasEnded: Bool
    var serving = AttachmentSenderStateMachine()
    /// When our transfer to the member counts as stalled; each chunk taken extends it. `nil` once stalled.
    var stallsAt: Timestamp?
    /// Read receipts that the member has not confirmed. The first ``saidReceiptCount`` were sent on the link in use.
    var readReceipts: [MessageID] = []
    var saidReceiptCount = 0
    /// A frame that no acknowledgement answers was sent, or is due on the next link, and no pong has confirmed it.
    var owesWord = false
    /// Nonce of the ping behind the last such frame: frames arrive in order, so its pong confirms all of them.
    var wordPing: UInt64?
    var profileBucket = TokenBucket(Limits.profileRate)
    /// The newest profile beyond the rate limit, adopted when the limit allows it.
    var laterDescription: Member?
    var forgeries = TokenBucket(Limits.forgeryRate)
    /// Rate limit for frames without effect. It belongs to the member, so a new link does not reset it.
    var idleFrames = IdleFrames.member
    /// Until then the member's links and frames are refused.
    var shunnedUntil: Timestamp?
    var heard = HeardPlaces()
    var runs = RunNumbers()
    var punching: PunchStateMachine
    /// `nil` before we use the member's mailbox or it uses ours.
    var mail: PeerMail?

    init(_ member: Member, own: PublicKey, hasEnded: Bool, now: Timestamp) {
        key = member.key
        link = LinkStateMachine(own: own, remote: member.key, isDialable: !member.endpoints.isEmpty, now: now)
        self.hasEnded = hasEnded
        punching = PunchStateMachine(offers: own < member.key)
    }

    var establishedLink: LinkID? { isEstablished ? link.link : nil }

    /// Something waits for the member: a reason to dial it while it sleeps, and to wake a sleeping inbox.
    var hasNews: Bool { !outbox.isEmpty || owesWord || !readReceipts.isEmpty }

    func isShunned(now: Timestamp) -> Bool { shunnedUntil.map { now < $0 } ?? false }

    /// The member is taking a file of ours; a stalled transfer does not count.
    var isTaking: Bool { isEstablished && !serving.isIdle && stallsAt != nil }

    var nextDeadline: Timestamp? {
        earliest(
            link.nextDeadline, outbox.nextDeadline, punching.nextDeadline, serving.isIdle ? nil : stallsAt,
            laterDescription == nil ? nil : profileBucket.readyAt, movesUntil)
    }

    /// The link in use is gone or replaced: frames in flight are sent again.
    func linkLost() {
        punching.linkChanged()
        outbox.linkLost()
        serving.linkLost()
        (saidReceiptCount, wordPing) = (0, nil)
        isEstablished = false
        movesUntil = nil
    }

    /// A frame that no acknowledgement answers is sent now.
    func noteWord() { (owesWord, wordPing) = (true, nil) }

    /// A pong has confirmed all frames sent on the link in use.
    func heardWord() {
        (owesWord, wordPing) = (false, nil)
        readReceipts.removeFirst(saidReceiptCount)
        saidReceiptCount = 0
    }

    /// From now on only news for the member is a reason for a link.
    func rest() {
        link.rest()
        outbox.rest()
        // A sleeping inbox forgets the profile, so no deadline may wake it for that.
        laterDescription = nil
    }

    /// - Returns: whether the member's acknowledgement was awaited.
    func settle(_ message: MessageID) -> Bool {
        guard outbox.cancel(message) else { return false }
        serving.remove(message)
        return true
    }
}

/// Counters of members' frames without effect.
struct FrameTally: Hashable, Sendable {
    /// Floods, forgeries, repeats.
    var dropped = 0
    /// Frames with an invalid signature, also counted in ``dropped``.
    var forged = 0

    /// Counts an invalid signature and returns `isValid`.
    mutating func holds(_ isValid: Bool) -> Bool {
        if !isValid {
            dropped += 1
            forged += 1
        }
        return isValid
    }
}

/// Detects two running copies of a member's home. A node draws a random run number at its start, so a number that
/// returns after another one proves two copies. Also keeps the member's reports about copies of our home.
struct RunNumbers: Hashable, Sendable {
    /// Run number of the newest session; 0 before the first.
    private var current: UInt64 = 0
    /// Run numbers of the sessions before, the newest last.
    private var earlier: [UInt64] = []
    /// When an earlier number last returned.
    private var cameBackAt: Timestamp?
    private var reportedAt: Timestamp?

    /// - Parameter run: 0 when the member sends none.
    /// - Returns: whether this newly shows two copies of the member's home.
    mutating func note(_ run: UInt64, now: Timestamp) -> Bool {
        guard run != 0, run != current else { return false }
        let hasComeBack = earlier.contains(run)
        earlier.removeAll { $0 == run }
        if current != 0 { earlier.append(current) }
        earlier.removeFirst(max(0, earlier.count - (Limits.runCount - 1)))
        current = run
        guard hasComeBack else { return false }
        defer { cameBackAt = now }
        return !areCopied(now: now)
    }

    /// - Returns: whether the member made no other report recently.
    mutating func noteReport(now: Timestamp) -> Bool {
        defer { reportedAt = now }
        return !reportsCopies(now: now)
    }

    func areCopied(now: Timestamp) -> Bool { Self.isRecent(cameBackAt, now) }

    func reportsCopies(now: Timestamp) -> Bool { Self.isRecent(reportedAt, now) }

    /// Copies of the member's home or of ours were ever shown.
    var haveShownCopies: Bool { cameBackAt != nil || reportedAt != nil }

    private static func isRecent(_ time: Timestamp?, _ now: Timestamp) -> Bool {
        time.map { now - $0 < Limits.copiesLifetime } ?? false
    }
}
