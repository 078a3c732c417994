/// All bounds of the protocol core.
package enum Limits {
    // MARK: Specification: peers rely on these.

    /// Most UTF-8 bytes of a text.
    package static let textByteCount = 32_768
    /// Most bytes of a content's payload of any kind: payload and envelope fit into a frame.
    package static let payloadByteCount = 60_000
    /// Most UTF-8 bytes of a fallback text, and of a content's type id.
    package static let fallbackByteCount = 1_024
    package static let contentTypeByteCount = 128
    /// Most UTF-8 bytes of a conversation's or profile's name, and of a description.
    package static let nameByteCount = 128
    package static let descriptionByteCount = 512
    /// Most endpoints of one node, and bytes of one.
    package static let endpointCount = 8
    package static let endpointByteCount = 255
    /// Most endpoints of an invite: each makes its QR code larger.
    package static let inviteEndpointCount = 3
    /// Most bytes of all endpoints of one member: the profiles of a whole group fit into a frame.
    package static let endpointsByteCount = 768
    /// Members of a conversation, ourselves included.
    package static let memberCount = 32
    /// Timeout of an unanswered proposal.
    package static let proposalLifetime: Milliseconds = 24 * .hour
    /// The asked member stops this long before the proposer does, so that no accept comes too late.
    package static let proposalClockTolerance: Milliseconds = 2 * .minute
    /// Most time between the sending of a content and its arrival. An ended agreement covers contents for this long.
    package static let transitTolerance: Milliseconds = 10 * .second
    package static let proposalRate = Rate(every: 5 * .second, burst: 3)
    /// An unsigned epoch raises ours to at most the newest signed one + `epochsBelieved`. A proposal is accepted up to
    /// `epochsAhead` above what we signed. The gap is the number of proposals left to a member that believed a liar.
    package static let epochsBelieved: UInt64 = 1 << 20
    package static let epochsAhead: UInt64 = 1 << 32
    /// Retries of a renewal by a standing policy that came too soon for the other side, for each end of a session.
    package static let renewalRefusalCount = 3
    /// Default of how long a link may be missing before the agreement ends with the session.
    package static let sessionGrace: Milliseconds = 30 * .second
    /// Default and longest lifetime of an invite.
    package static let inviteLifetime: Milliseconds = .day
    package static let inviteMaximumLifetime: Milliseconds = 7 * .day
    package static let joinLifetime: Milliseconds = .day
    /// How long a join waits for its user to agree to what the conversation keeps.
    package static let joinAnswerTime: Milliseconds = 10 * .minute
    /// An undelivered message is given up after this long, or at its expiry.
    package static let outboxLifetime: Milliseconds = 7 * .day
    package static let resend = Backoff(first: 2 * .second, longest: 15 * .minute)
    package static let tombstoneLifetime: Milliseconds = 45 * .day
    /// How long the fan-out list of an explosion is kept.
    package static let fanOutLifetime: Milliseconds = 7 * .day
    /// Every sealed explode notice has this size.
    package static let noticeByteCount = 512
    /// A scheduled explosion is at most this far ahead.
    package static let explosionHorizon: Milliseconds = 365 * .day
    /// A reminder comes at most this long before a scheduled explosion.
    package static let reminderLead: Milliseconds = 10 * .minute
    /// Most invites for which a tombstone answers; the newest are kept.
    package static let tombstoneInviteCount = 16
    package static let codeLifetime: Milliseconds = 5 * .minute
    /// Lifetime of a code's invite, from when it is made: an hour, because a joiner's clock may be set to a wrong time
    /// zone.
    package static let codeInviteLifetime: Milliseconds = .hour
    /// Reservations at rendezvous nodes that a tombstone keeps: the current one and the one before.
    package static let tombstoneSeedCount = 2

    // MARK: Implementation: may be tuned.

    /// Unacknowledged messages in flight to one member.
    package static let inFlightCount = 256
    /// Undelivered messages of one conversation.
    package static let outboxCount = 100_000
    /// Unread contents in memory of one inbox, and of all inboxes.
    package static let memoryByteCount = 1 << 20
    package static let memoryTotalByteCount = 16 << 20
    /// Default of the bytes that one inbox stores. Beyond it, peers' contents are not acknowledged until some have
    /// expired. A record counts at least `storedRecordByteCount`, for its place in the index.
    package static let storedByteCount: Int64 = 4 << 30
    package static let storedRecordByteCount: Int64 = 1_024
    /// Peers' contents are not stored if less than this, or a twentieth of the disk if that is less, is free.
    package static let freeByteCount: UInt64 = 256 << 20
    /// Unexpired invites of one conversation.
    package static let inviteCount = 64
    /// Joiners that one invite admits, and removed members that are remembered, so that they can be told.
    package static let admissionCount = 256
    package static let departedCount = 8
    /// Open spoken codes of a node, and ended ones whose outcome is remembered.
    package static let codeCount = 4
    package static let codeOutcomeCount = 16
    /// Pending invitations from one sender, and from all senders that are not named peers.
    package static let invitationsPerSender = 4
    package static let strangerInvitationCount = 16
    /// Earlier agreements that contents in transit may name.
    package static let agreementCount = 64
    /// Agreements kept with all signatures, in addition to the newest one.
    package static let agreementRecordCount = 16
    /// Ended proposals that an uninformed member may still relay.
    package static let endedProposalCount = 32
    /// Members, including former ones, whose proposals up to a ballot are void.
    package static let ballotFloorCount = 64
    /// Knocks with a wrong signature, of one member and of one network: 3 at once, then one every 10 s.
    package static let forgedKnockRate = Rate(every: 10 * .second, burst: 3)
    /// Answered knocks: of one member, or of the holders of one invite, 4 at once, then one a second; of one network 16
    /// at once, then four a second.
    package static let answeredKnockRate = Rate(every: .second, burst: 4)
    package static let knockSourceRate = Rate(every: 250, burst: 16)
    /// For a member whose answers others have used up: from unused networks 8 at once, then one a second.
    package static let knockReserveRate = Rate(every: .second, burst: 8)
    /// Networks, and members, with a rate limit of their own; all others share one.
    package static let knockBucketCount = 256
    /// Writes of counters caused by tokens, of all inboxes: 8 at once, then one a second.
    package static let counterSaveRate = Rate(every: .second, burst: 8)
    /// Waits between dials of one member: with jitter and the time of a dial, at most a minute.
    package static let redial = Backoff(first: 250, longest: 32 * .second)
    /// Dials of one member at one time: to its known endpoints, and to those heard meanwhile.
    package static let dialCount = 3
    /// Dials after changes of this machine's addresses: 4 at once, then one every 250 ms; and most queued dials.
    package static let changeDialRate = Rate(every: 250, burst: 4)
    package static let changeDialQueue = 1_024
    /// Changes less than this apart are a series: only the first of them shortens the waits between dials.
    package static let changeSeries: Milliseconds = .minute
    /// Dials of members at one time. Each may take a descriptor for each of eight endpoints.
    package static let dialsUnderWay = 64
    /// A link with an unanswered ping of this age may be dead: discovery looks for its member.
    package static let pingPatience: Milliseconds = 3 * .second
    /// Endpoints heard by local discovery for one member, and for how long each is dialled.
    package static let heardCount = 4
    package static let heardLifetime: Milliseconds = 10 * .minute
    /// A member that has gone to sleep is dialled again after this long.
    package static let redialAsleep: Milliseconds = 20 * .minute
    /// Runs of a member's home that are remembered, and how long two alternating runs are a warning.
    package static let runCount = 4
    package static let copiesLifetime: Milliseconds = .hour
    /// Wait between dials while two copies of a home alternate, plus up to half as much jitter.
    package static let redialCopies: Milliseconds = 30 * .second
    /// So many consecutive links with a rendezvous node that lasted less than `shortLink` are a sign of another copy of
    /// our home.
    package static let shortLinkCount = 4
    package static let shortLink: Milliseconds = 10 * .second
    /// The member with the larger key lets the other dial first, so that usually one link opens.
    package static let redialYield: Milliseconds = 400
    /// Two links that open within this time are simultaneous; a later one replaces a link that the peer has lost.
    package static let simultaneousDialWindow: Milliseconds = 10 * .second
    /// Closing links of guests that wait for their other end; beyond it the oldest ends at once.
    package static let closingGuestCount = 256
    /// A guest that is no member after this long is disconnected.
    package static let guestStay: Milliseconds = 10 * .second
    package static let guestCount = 256
    /// A silent link gets a ping after this long, and is closed after that.
    package static let keepaliveInterval: Milliseconds = 15 * .second
    package static let keepaliveTimeout: Milliseconds = 45 * .second
    /// Waits between knocks of an explosion's redelivery.
    package static let knock = Backoff(first: 2 * .second, longest: 15 * .minute)
    /// Once a turn has this many knocks, its other explosions knock a second later: a start may load many of them.
    package static let knocksAtOnce = 32
    /// Changes of one member's profile: one every 5 s, bursts of 3. The newest change above the rate is adopted when
    /// the rate allows it.
    package static let profileRate = Rate(every: 5 * .second, burst: 3)
    /// System messages about members of one conversation.
    package static let memberMessageRate = Rate(every: .minute, burst: 64)
    /// Invitations from peers that wait for an answer.
    package static let invitationCount = 64
    /// Unverifiable frames of one member: 3 at once, then one every 10 s. Beyond it the link is closed, and links with
    /// that member are refused for `forgeryPause`.
    package static let forgeryRate = Rate(every: 10 * .second, burst: 3)
    package static let forgeryPause: Milliseconds = .minute
    /// Times that others may bring a scheduled explosion forward: 3 at once, then one every 5 s. The earliest request
    /// above the rate is adopted later.
    package static let scheduleRate = Rate(every: 5 * .second, burst: 3)
    /// Default and most awake inboxes; an awake inbox takes 9 KiB of memory.
    package static let inboxCapacity = 1_024
    package static let inboxCapacityMaximum = 10_000
    /// How long an inbox stays awake after a user's request, and after a token.
    package static let inboxStayForUser: Milliseconds = 3 * .second
    package static let inboxStayForToken: Milliseconds = 2 * .second
    /// How long an inbox that was woken to deliver may try.
    package static let inboxStayForDelivery: Milliseconds = 10 * .second
    /// A sleeping inbox with a failed delivery is woken again after 4 s, 8 s … 15 min, each shortened by up to a
    /// quarter at random.
    package static let sleepingRetry = Backoff(first: 4 * .second, longest: 15 * .minute)
    /// A start or a rebalance wakes this many inboxes in one turn, in which handshakes wait, and then pauses.
    package static let wakeBatchCount = 4
    package static let wakePause: Milliseconds = 25
    /// How often inboxes beyond the capacity are put to sleep, and the delay of a rebalance after a change.
    package static let inboxTrimInterval: Milliseconds = .second
    /// Join requests by one invite that a node checks: 60 at once, then one a second.
    package static let joinRequestRate = Rate(every: .second, burst: 60)
    /// Refused requests of one invite tag that are answered: 5 at once, then one every 12 s; and tags with a rate
    /// limit.
    package static let joinRefusalRate = Rate(every: 12 * .second, burst: 5)
    package static let joinTagCount = 1_024
    /// A failed join stays listed until this long after its start, then its inbox is destroyed.
    package static let joinListedLifetime: Milliseconds = 2 * joinLifetime

    // MARK: Contents: peers rely on these.

    /// Most UTF-8 bytes of a reaction.
    package static let reactionByteCount = 64
    /// Bytes of a file in one chunk: a frame holds it, deflated or not.
    package static let chunkByteCount = 61_440
    /// Requested chunks in flight from one member; most chunks in one request.
    package static let attachmentWindow = 32
    /// Most UTF-8 bytes of a file's name and of its media type.
    package static let fileNameByteCount = 255
    package static let mediaTypeByteCount = 127
    /// Most messages in one receipt.
    package static let receiptCount = 256
    /// Most contents in one frame.
    package static let contentsCount = 256
    /// Most messages in one acknowledgement.
    package static let acknowledgementCount = 1_024

    // MARK: Contents: may be tuned.

    /// Default of the largest file that is sent or accepted, in bytes.
    package static let attachmentByteCount: Int64 = 1 << 30
    /// Bytes in memory of one file without an agreement, and of all such files.
    package static let attachmentMemoryByteCount: Int64 = 8 << 20
    package static let attachmentMemoryTotalByteCount: Int64 = 32 << 20
    /// Unfinished files from one member.
    package static let incomingAttachmentCount = 16
    /// Requested chunks of one member that were not sent yet.
    package static let attachmentQueueCount = 128
    /// Chunks that are handed to a link at once.
    package static let attachmentBurst = 2
    /// First and longest wait before a chunk is requested again.
    package static let attachmentRetry = Backoff(first: 20 * .second, longest: 5 * .minute)
    /// A file without progress for this long keeps no inbox awake.
    package static let transferPatience: Milliseconds = .minute
    /// Progress is shown after this long, or after a twentieth of the file.
    package static let progressInterval: Milliseconds = .second
    /// Files that users of this node are uploading.
    package static let uploadCount = 16
    /// Read receipts to one member that wait for a link, and messages remembered as reported read (`receiptedCount`).
    package static let pendingReceiptCount = 4_096
    /// Remembered contents that had expired on arrival, so that clients are notified once.
    package static let expiredOnArrivalCount = 1_024
    package static let receiptedCount = 16_384
    /// Sleeping inboxes woken by holders of invites: 16 at once, then one every 250 ms. Members are not counted.
    package static let guestWakeRate = Rate(every: 250, burst: 16)
    /// No-op frames of one member: 4 for each token, 64 tokens at once, then one every ms. On a non-member's link: 2
    /// tokens, then one every 7 ms. Above the rate the link is not read until its token is there. `idleFrameDebt`
    /// exceeds the number of links that share a rate.
    package static let idleFrameGroup = 4
    package static let idleFrameRate = Rate(every: 1, burst: 64)
    package static let idleFrameStrangerRate = Rate(every: 7, burst: 2)
    package static let idleFrameDebt = 4_096
    /// A no-op frame with a signature to check counts as this many.
    package static let costlyFrame = 8
}
