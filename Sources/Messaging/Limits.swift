/// Every bound of the protocol core, with its unit.
package enum Limits {
    // MARK: Specification: peers rely on these.

    /// Most UTF-8 bytes of a text.
    package static let textByteCount = 32_768
    /// Most bytes of a content's payload of any kind: a frame holds it with its envelope.
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
    /// Endpoints that an invite names: each makes its QR code larger.
    package static let inviteEndpointCount = 3
    /// Most bytes of all endpoints of one member: a frame holds the descriptions of a whole group.
    package static let endpointsByteCount = 768
    /// Members of a conversation, ourselves included.
    package static let memberCount = 32
    /// A proposal that nobody has answered ends after this long.
    package static let proposalLifetime: Milliseconds = 24 * .hour
    /// The member that is asked stops this long before the proposer does, so that no accept comes too late.
    package static let proposalClockTolerance: Milliseconds = 2 * .minute
    /// What may pass between the sending of a content and its arrival: an agreement that has ended covers it so long.
    package static let transitTolerance: Milliseconds = 10 * .second
    /// A withdrawal that crosses our accept restores a longer lifetime for this long only.
    package static let withdrawalWindow: Milliseconds = 10 * .second
    /// Proposals per member: one every 5 s, bursts of 3.
    package static let proposalInterval: Milliseconds = 5 * .second
    package static let proposalBurst = 3
    /// How far above what all have signed an epoch is believed that others name, and how far above what it has signed
    /// itself a member accepts the epoch of a proposal. The difference is the number of proposals that a member which
    /// believed a liar may make before one becomes an agreement.
    package static let epochsBelieved: UInt64 = 1 << 20
    package static let epochsAhead: UInt64 = 1 << 32
    /// How often a renewal by a standing policy that came too soon for the other side is tried again, for each end of a
    /// session.
    package static let renewalRefusalCount = 3
    /// Default of how long a link may be away before the agreement ends with the session.
    package static let sessionGrace: Milliseconds = 30 * .second
    /// An invite lives this long unless told otherwise, and at most a week.
    package static let inviteLifetime: Milliseconds = .day
    package static let inviteMaximumLifetime: Milliseconds = 7 * .day
    /// A join that has not ended by then is given up.
    package static let joinLifetime: Milliseconds = .day
    /// An undelivered message is given up after this long, or at its expiry.
    package static let outboxLifetime: Milliseconds = 7 * .day
    package static let resendFirst: Milliseconds = 2 * .second
    package static let resendLongest: Milliseconds = 15 * .minute
    /// A tombstone is kept this long.
    package static let tombstoneLifetime: Milliseconds = 45 * .day
    /// The list that drives redelivery of an explosion is kept this long.
    package static let fanOutLifetime: Milliseconds = 7 * .day
    /// A sealed explode notice, whatever it says.
    package static let noticeByteCount = 512
    /// A scheduled explosion is at most this far ahead.
    package static let explosionHorizon: Milliseconds = 365 * .day
    /// The user is reminded of it at most this long before.
    package static let reminderLead: Milliseconds = 10 * .minute
    /// Invites whose holders a tombstone answers: the newest.
    package static let tombstoneInviteCount = 16
    /// A code to say aloud is good for this long, and the invite that it leads to for so long after that: clocks differ, and
    /// an hour is a time zone set wrongly.
    package static let codeLifetime: Milliseconds = 5 * .minute
    package static let codeInviteLifetime: Milliseconds = .hour
    /// Places at rendezvous nodes that a tombstone keeps: the present one, and the one of before.
    package static let tombstoneSeedCount = 2

    // MARK: Implementation: may be tuned.

    /// Messages on their way to one member without an acknowledgement.
    package static let inFlightCount = 256
    /// Undelivered messages of one conversation.
    package static let outboxCount = 100_000
    /// Unread contents that one inbox keeps in memory, and all inboxes together.
    package static let memoryByteCount = 1 << 20
    package static let memoryTotalByteCount = 16 << 20
    /// Bytes that one inbox stores unless `config.json` says otherwise; beyond it what peers send is not acknowledged
    /// until some has expired. A stored record counts as so many at least, for its place in the index.
    package static let storedByteCount: Int64 = 4 << 30
    package static let storedRecordByteCount: Int64 = 1_024
    /// What peers send is not stored when less than this is free on the disk, or a twentieth of it if that is less.
    package static let freeByteCount: UInt64 = 256 << 20
    /// Invites of one conversation that have not expired.
    package static let inviteCount = 64
    /// Joiners that one invite admits in all, and removed members that are remembered, so that they can be told.
    package static let admissionCount = 256
    package static let departedCount = 8
    /// Codes to say aloud that are open in a node, and codes of which it is known what has become of them.
    package static let codeCount = 4
    package static let codeOutcomeCount = 16
    /// Invitations from one sender that wait, and from all senders that are not named peers.
    package static let invitationsPerSender = 4
    package static let strangerInvitationCount = 16
    /// Earlier agreements that contents on their way may still name.
    package static let agreementCount = 64
    /// Agreements that are kept whole, with all signatures, beside the newest one.
    package static let agreementRecordCount = 16
    /// Proposals that are over and may still be relayed by somebody who does not know it.
    package static let endedProposalCount = 32
    /// Members, also of those that have gone, whose proposals up to a ballot are void.
    package static let ballotFloorCount = 64
    /// Knocks that cost a signature's check and do not hold, of one member and of one network: 3 at once, then one every 10 s.
    package static let forgedKnockInterval: Milliseconds = 10 * .second
    package static let forgedKnockBurst = 3
    /// Knocks that are answered: of one member or the holders of one invite 4 at once, then one a second; of one network 16
    /// at once, then four a second.
    package static let answeredKnockInterval: Milliseconds = .second
    package static let answeredKnockBurst = 4
    package static let knockSourceInterval: Milliseconds = 250
    package static let knockSourceBurst = 16
    /// Where others have used up what a member has: from networks that have done nothing, 8 at once, then one a second.
    package static let knockReserveInterval: Milliseconds = .second
    package static let knockReserveBurst = 8
    /// Networks, and members, of which it is known what they have used up; all others share one allowance.
    package static let knockBucketCount = 256
    /// Writes of counters because of tokens that were shown, of all inboxes: 8 at once, then one a second.
    package static let counterSaveInterval: Milliseconds = .second
    package static let counterSaveBurst = 8
    /// Waits between dials of one member.
    package static let redialFirst: Milliseconds = 250
    /// With its random part, and with the time that a dial takes, no more than a minute.
    package static let redialLongest: Milliseconds = 32 * .second
    /// Dials of one member at one time: where it is known to be, and where it was heard meanwhile.
    package static let dialCount = 3
    /// Dials that follow from changes of this machine's addresses: 4 at once, then one every 250 ms, and how many wait.
    package static let changeDialInterval: Milliseconds = 250
    package static let changeDialBurst = 4
    package static let changeDialQueue = 1_024
    /// Changes that follow each other sooner are a series: only the first of them makes the waits between dials short again.
    package static let changeSeries: Milliseconds = .minute
    /// Dials of members at one time; the others wait. Each may take a descriptor for each of eight endpoints.
    package static let dialsUnderWay = 64
    /// A link that was asked and has not answered for so long may be dead: its member is looked for on this network.
    package static let pingPatience: Milliseconds = 3 * .second
    /// Places where a member was heard on this network, and for how long it is dialled there.
    package static let heardCount = 4
    package static let heardLifetime: Milliseconds = 10 * .minute
    /// A member that has gone to sleep is dialled again after this long, if nothing wakes it before.
    package static let redialAsleep: Milliseconds = 20 * .minute
    /// How many numbers of runs of a member's home are remembered, and for how long two runs that took turns are a warning.
    package static let runCount = 4
    package static let copiesLifetime: Milliseconds = .hour
    /// While two copies of a home take turns this long passes between dials, and at random up to half as much more.
    package static let redialCopies: Milliseconds = 30 * .second
    /// So many links with a rendezvous node in a row that lasted less than this are the sign of another copy of our home.
    package static let shortLinkCount = 4
    package static let shortLink: Milliseconds = 10 * .second
    /// The member with the larger key lets the other dial first, so that one link is the rule.
    package static let redialYield: Milliseconds = 400
    /// Two links that open within this time were dialled at once; a later one replaces a link that the peer has lost.
    package static let simultaneousDialWindow: Milliseconds = 10 * .second
    /// Links of guests that are closed and still wait for their other end; beyond it the first of them ends at once.
    package static let closingGuestCount = 256
    /// Whoever came by an invite or a contact card and is not a member by then is sent away.
    package static let guestStay: Milliseconds = 10 * .second
    /// Links of such guests at one time.
    package static let guestCount = 256
    /// A silent link is asked after this long, and given up after that.
    package static let keepaliveInterval: Milliseconds = 15 * .second
    package static let keepaliveTimeout: Milliseconds = 45 * .second
    /// Waits between knocks of an explosion's redelivery.
    package static let knockFirst: Milliseconds = 2 * .second
    package static let knockLongest: Milliseconds = 15 * .minute
    /// Changes of one member's description: one every 5 s, bursts of 3. The newest of those
    /// that come faster is taken over when the rate allows it.
    package static let profileInterval: Milliseconds = 5 * .second
    package static let profileBurst = 3
    /// Invitations from peers that wait for an answer.
    package static let invitationCount = 64
    /// Frames of one member that do not verify: 3 at once, then one every 10 s; beyond it the link is closed, and no link
    /// with that member is made for this long.
    package static let forgeryInterval: Milliseconds = 10 * .second
    package static let forgeryBurst = 3
    package static let forgeryPause: Milliseconds = .minute
    /// How often others may bring a scheduled explosion forward: 3 times at once, then every 5 s; the earliest of what
    /// comes more often is taken then.
    package static let scheduleInterval: Milliseconds = 5 * .second
    package static let scheduleBurst = 3
    /// Inboxes that are awake by default, and at most; an awake inbox takes 9 KiB of memory.
    package static let inboxCapacity = 1_024
    package static let inboxCapacityMaximum = 10_000
    /// For how long an inbox is left awake after a user has asked for something in it, and after a token has woken it.
    package static let inboxStayForUser: Milliseconds = 3 * .second
    package static let inboxStayForToken: Milliseconds = 2 * .second
    /// For how long an inbox that was woken to deliver may try.
    package static let inboxStayForDelivery: Milliseconds = 10 * .second
    /// A sleeping inbox that has tried in vain to deliver is woken again after 4 s, 8 s … 15 min, each shortened by up to a
    /// quarter at random.
    package static let sleepingRetryFirst: Milliseconds = 4 * .second
    package static let sleepingRetryLongest: Milliseconds = 15 * .minute
    /// Inboxes that are woken in one turn when many are to be; the others follow.
    package static let wakeBatchCount = 16
    /// How often inboxes beyond the capacity are looked at, and how long after a change the set is put in order again.
    package static let inboxTrimInterval: Milliseconds = .second
    /// Join requests by one invite that a node looks at: 60 at once, then one a second.
    package static let joinRequestInterval: Milliseconds = .second
    package static let joinRequestBurst = 60
    /// Refused requests of one invite tag that are answered: 5 at once, then one every 12 s; and tags that are counted.
    package static let joinRefusalInterval: Milliseconds = 12 * .second
    package static let joinRefusalBurst = 5
    package static let joinTagCount = 1_024
    /// A join that has failed stays listed until this long after it began, then its inbox is destroyed.
    package static let joinListedLifetime: Milliseconds = 2 * joinLifetime

    // MARK: Contents: peers rely on these.

    /// Most UTF-8 bytes of a reaction.
    package static let reactionByteCount = 64
    /// Bytes of a file in one chunk: a frame holds it, deflated or not.
    package static let chunkByteCount = 32_768
    /// Chunks that are asked for and have not come, from one member; most chunks in one request.
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

    /// Largest file that is sent or taken, in bytes, unless the configuration says otherwise.
    package static let attachmentByteCount: Int64 = 1 << 30
    /// Without an agreement a file stays in memory: bytes of one, and of all together.
    package static let attachmentMemoryByteCount: Int64 = 8 << 20
    package static let attachmentMemoryTotalByteCount: Int64 = 32 << 20
    /// Unfinished files from one member.
    package static let incomingAttachmentCount = 16
    /// Chunks that one member has asked for and that were not sent yet.
    package static let attachmentQueueCount = 128
    /// Chunks that are handed to a link at once.
    package static let attachmentBurst = 4
    /// How long a chunk may take before it is asked for again, and the longest such wait.
    package static let attachmentRetryFirst: Milliseconds = 10 * .second
    package static let attachmentRetryLongest: Milliseconds = 5 * .minute
    /// A file of which nothing has come or gone for this long keeps no inbox awake.
    package static let transferPatience: Milliseconds = .minute
    /// Progress is shown after this long, or after a twentieth of the file.
    package static let progressInterval: Milliseconds = .second
    /// Files that users of this node are handing over.
    package static let uploadCount = 16
    /// Read receipts to one member that wait for a link, and messages that are remembered as said to be read.
    package static let pendingReceiptCount = 4_096
    /// Contents that had expired on arrival and are remembered, so that watchers are told once.
    package static let expiredOnArrivalCount = 1_024
    package static let receiptedCount = 16_384
    /// Sleeping inboxes that are woken by holders of invites: 16 at once, then one every 250 ms. Members are not counted.
    package static let guestWakeInterval: Milliseconds = 250
    package static let guestWakeBurst = 16
    /// Frames of one member that change nothing: 4 for each token, 64 tokens at once (2 on a link of anybody else's) and
    /// then one every ms (7 ms); whoever sends more is not read from until its token is there. Links that share a rate are
    /// fewer than may be waited for.
    package static let idleFrameGroup = 4
    package static let idleFrameBurst = 64
    package static let idleFrameStrangerBurst = 2
    package static let idleFrameInterval: Milliseconds = 1
    package static let idleFrameStrangerInterval: Milliseconds = 7
    package static let idleFrameDebt = 4_096
    /// As many of them is one that costs a check of a signature.
    package static let costlyFrame = 8
}
