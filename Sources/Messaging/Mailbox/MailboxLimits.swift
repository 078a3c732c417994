extension Limits {
    // MARK: Mailbox, specification: peers rely on these.

    /// Most labels of one claim.
    package static let boxLabelCount = 128
    /// Most tags of one request.
    package static let slotTagCount = 32
    /// Most slots of one list or purge.
    package static let slotListCount = 512
    /// The owner's answer to a notice: a sealed receipt.
    package static let slotAnswerByteCount = 256
    /// Most slice keys of one frame.
    package static let sliceKeyCount = 256
    /// How far ahead an owner makes slice keys: a day for lifetimes of an hour.
    package static let sliceHorizon: Milliseconds = 7 * .day
    package static let sliceHorizonOfHour: Milliseconds = .day
    /// How long a mailbox keeps contents that have no lifetime of their own, in its memory.
    package static let mailedMemoryLifetime: Milliseconds = .day

    // MARK: Mailbox, implementation: may be tuned.

    /// Boxes of one mailbox.
    package static let boxCount = 128
    /// Slots, bytes of bodies, and notices of one box.
    package static let slotCount = 256
    package static let boxByteCount = 4 << 20
    package static let noticeCount = 32
    /// Bytes of all bodies that a mailbox keeps in memory.
    package static let mailboxMemoryByteCount = 32 << 20
    /// Puts into one box: 256 at once, then 64 a minute. From one network: twice that.
    package static let putRate = Rate(every: .minute / 64, burst: 256)
    package static let putSourceRate = Rate(every: .minute / 128, burst: 512)
    /// Bytes put into one box on the disk: 16 MiB at once, then 4 MiB an hour.
    package static let putKibibyteRate = Rate(every: .hour / (4 << 10), burst: 16 << 10)
    /// Bytes that one owner takes, each body rounded up to 4 KiB: 512 MiB at once, then 4 MiB a second.
    package static let takeUnit = 4 << 10
    package static let takeRate = Rate(every: 1, burst: 128 << 10)
    /// Notices that guests of one network take: 1,024 at once, then 10 a second.
    package static let takeSourceRate = Rate(every: .second / 10, burst: 1_024)
    /// Pauses between retries of a failed read.
    package static let reread = Backoff(first: 2 * .second, longest: 64 * .second)
    /// New boxes of one owner: 512 at once, then one each 10 s.
    package static let boxRate = Rate(every: 10 * .second, burst: 512)
    /// Most networks with a rate limit for puts, and for takes.
    package static let putSourceCount = 1_024
    /// The box of an owner absent for this long is destroyed.
    package static let boxSilence: Milliseconds = 60 * .day
    /// An owner's link is asked after this much silence, and closed after that.
    package static let mailboxKeepalive: Milliseconds = .minute
    package static let mailboxSilence: Milliseconds = 150 * .second
    /// Pause before boxes are claimed again that the mailbox has not granted.
    package static let reclaimPause: Milliseconds = 5 * .minute
    /// Waits before a mailbox that is unreachable, or refuses, is dialled again.
    package static let mailboxRedial = Backoff(first: .second, longest: 5 * .minute)
    /// Contents for a member without a link go to its mailbox after this long.
    package static let mailDelay: Milliseconds = 2 * .second
    /// Waits after a failed put.
    package static let mailRetry = Backoff(first: 4 * .second, longest: 15 * .minute)
    /// Most messages, and slots, of one order.
    package static let mailOrderCount = 256
    package static let mailSlotCount = 32
    /// Most skipped slot numbers of one member that may still arrive.
    package static let slotGapCount = 1_024
    /// Runs of one member's node whose taken numbers are kept.
    package static let slotRunCount = 64
    /// Requests of one member for slice keys: 3 at once, then one each 10 s.
    package static let sliceRequestRate = Rate(every: 10 * .second, burst: 3)
    /// Largest difference of a sender's slice from its owner's, unless a clock was stepped.
    package static let sliceTolerance: Milliseconds = .minute
    /// Time after which an unanswered request for slice keys is repeated.
    package static let sliceRequestPatience: Milliseconds = .minute
    /// Frames of keys from one member: 64 at once, then one a second.
    package static let sliceFrameRate = Rate(every: .second, burst: 64)
    /// Slice keys made in one step: each may be a write of the disk.
    package static let sliceStepCount = 16
}
