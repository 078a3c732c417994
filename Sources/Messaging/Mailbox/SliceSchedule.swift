import Crypto

/// How an agreement's time is cut into slices: each has a key of its own, which the owner's store destroys when nothing
/// that was sealed to it may be read any more.
package struct SliceSchedule: Hashable, Sendable {
    /// Of one slice.
    package let width: Milliseconds
    /// How long a content may wait unopened under these terms.
    package let unread: Milliseconds
    /// The owner makes keys for so long ahead.
    package let horizon: Milliseconds
    /// The store's class in which the keys are.
    package let tier: Lifetime

    package init(_ terms: LifetimeTerms) {
        let kinds = [ContentKind.text, .attachment].compactMap(terms.unreadTime)
        unread = kinds.max() ?? Limits.mailedMemoryLifetime
        tier = .holding(unread)
        horizon = tier == .oneHour ? Limits.sliceHorizonOfHour : Limits.sliceHorizon
        width =
            switch tier {
            case .ephemeral, .oneHour: 15 * .minute
            case .sixHours: .hour
            case .oneDay: 3 * .hour
            case .sevenDays, .thirtyDays: 12 * .hour
            }
    }

    /// The slice of a moment by the owner's clock.
    package func slice(at time: Timestamp) -> UInt32 { UInt32(clamping: time.milliseconds / width) }

    /// When a slice ends, by the owner's clock.
    package func end(of slice: UInt32) -> Timestamp { Timestamp(milliseconds: (Int64(slice) + 1) * width) }

    /// When its key is destroyed, by the owner's clock.
    package func keyEnd(of slice: UInt32) -> Timestamp { end(of: slice) + unread }

    /// Age of the contents of a slot that is sealed to a slice.
    /// - Parameters:
    ///   - dwell: time for which the mailbox says that it has held the slot.
    ///   - now: by the owner's clock.
    package func age(in slice: UInt32, dwell: Milliseconds, now: Timestamp) -> SlotAge {
        let sinceEnd = now - end(of: slice)
        let longest = max(0, sinceEnd + width) + Limits.sliceTolerance
        return SlotAge(dwell: max(0, dwell), least: max(0, sinceEnd), isDoubtful: dwell > longest)
    }

    /// The last slice for which there are keys.
    package func last(at now: Timestamp) -> UInt32 { slice(at: now + horizon) }
}

/// What is known of the age of a slot's contents.
package struct SlotAge: Hashable, Sendable {
    /// Time in the mailbox, by its word. It is added to the age of each content at its deposit.
    package var dwell: Milliseconds
    /// Contents are no younger than this: the time since their slice ended, by the owner's clock.
    package var least: Milliseconds
    /// The slot was put before its slice began, if the mailbox speaks the truth. Either the mailbox lies, or the clock of the
    /// sender or the owner was stepped. The age counts, but no content of the slot is acknowledged: the sender keeps the
    /// contents for a link.
    package var isDoubtful: Bool

    package init(dwell: Milliseconds, least: Milliseconds = 0, isDoubtful: Bool = false) {
        self.dwell = dwell
        self.least = least
        self.isDoubtful = isDoubtful
    }
}

/// Public keys of consecutive slices of one owner.
package struct SliceKeys: Hashable, Sendable {
    package var agreement: AgreementID
    package var first: UInt32
    /// From the sending of this until the end of the owner's present slice, and which that is. No time of day is named.
    package var present: UInt32
    package var left: Milliseconds
    /// One for each slice from `first` on; at most ``Limits/sliceKeyCount``.
    package var keys: [PublicKey]

    package init(agreement: AgreementID, first: UInt32, present: UInt32, left: Milliseconds, keys: [PublicKey]) {
        self.agreement = agreement
        self.first = first
        self.present = present
        self.left = left
        self.keys = keys
    }
}

/// What a sender knows of one member's slices, by its own clock.
package struct KnownSlices: Hashable, Sendable, Codable {
    package private(set) var agreement: AgreementID
    private var first: UInt32
    /// The keys, 33 bytes each, in base64url: they go with every state of the conversation.
    private var keys: String
    /// When the slice `present` ends by our clock.
    private var present: UInt32
    private var presentEnds: Timestamp

    package init(_ message: SliceKeys, now: Timestamp) {
        agreement = message.agreement
        first = message.first
        keys = Base64URL.encode(message.keys.flatMap(\.bytes))
        present = message.present
        presentEnds = now + message.left
    }

    private var count: Int { keys.utf8.count / 44 }
    /// The last slice of which the key is known; `nil` without any.
    package var last: UInt32? { count == 0 ? nil : first + UInt32(count - 1) }

    /// Adds keys that follow, and takes the newer word on the time.
    package mutating func add(_ message: SliceKeys, now: Timestamp) {
        guard message.agreement == agreement, let last, message.first == last &+ 1, !message.keys.isEmpty else {
            if message.agreement == agreement, message.keys.isEmpty {
                (present, presentEnds) = (message.present, now + message.left)
            } else {
                self = KnownSlices(message, now: now)
            }
            return
        }
        // 33 bytes are 44 letters, so the texts join.
        keys += Base64URL.encode(message.keys.flatMap(\.bytes))
        (present, presentEnds) = (message.present, now + message.left)
        let surplus = count - 2 * Limits.sliceKeyCount
        if surplus > 0 { forget(surplus) }
    }

    private mutating func forget(_ surplus: Int) {
        keys = String(keys.dropFirst(44 * surplus))
        first += UInt32(surplus)
    }

    /// The owner's slice at a moment by our clock.
    package func slice(now: Timestamp, width: Milliseconds) -> UInt32 {
        let since = now - (presentEnds - width)
        let passed = since >= 0 ? since / width : -((-since + width - 1) / width)
        return UInt32(clamping: Int64(present) + passed)
    }

    /// The key to which contents of a moment are sealed: of the first slice that is known for earlier ones; `nil` when the owner
    /// has made none for so late.
    package func key(now: Timestamp, width: Milliseconds) -> (slice: UInt32, key: PublicKey)? {
        let slice = max(first, slice(now: now, width: width))
        guard slice - first < UInt32(count) else { return nil }
        let start = keys.utf8.index(keys.startIndex, offsetBy: 44 * Int(slice - first))
        let text = keys[start..<keys.utf8.index(start, offsetBy: 44)]
        guard let bytes = Base64URL.decode(text), let key = try? PublicKey(bytes) else { return nil }
        return (slice, key)
    }

    /// Keys of slices that are over.
    package mutating func prune(now: Timestamp, width: Milliseconds) {
        let present = slice(now: now, width: width)
        guard present > first else { return }
        forget(min(Int(present - first), max(0, count - 1)))
    }
}
