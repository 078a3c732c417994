import Cryptography

/// Divides an agreement's time into slices. Each has its own key, which the owner's store destroys when all contents
/// sealed to it have expired.
package struct SliceSchedule: Hashable, Sendable {
    package let width: Milliseconds
    /// How long a content may wait unopened under these terms.
    package let unread: Milliseconds
    /// How far ahead the owner makes keys.
    package let horizon: Milliseconds
    /// The store's expiry class of the keys.
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

    /// By the owner's clock.
    package func slice(at time: Timestamp) -> UInt32 { UInt32(clamping: time.milliseconds / width) }

    /// By the owner's clock.
    package func end(of slice: UInt32) -> Timestamp { Timestamp(milliseconds: (Int64(slice) + 1) * width) }

    /// When the slice's key is destroyed, by the owner's clock.
    package func keyEnd(of slice: UInt32) -> Timestamp { end(of: slice) + unread }

    /// - Parameters:
    ///   - dwell: how long the mailbox says that it has held the slot.
    ///   - now: by the owner's clock.
    package func age(in slice: UInt32, dwell: Milliseconds, now: Timestamp) -> SlotAge {
        let sinceEnd = now - end(of: slice)
        let longest = max(0, sinceEnd + width) + Limits.sliceTolerance
        return SlotAge(dwell: max(0, dwell), least: max(0, sinceEnd), isDoubtful: dwell > longest)
    }

    package func last(at now: Timestamp) -> UInt32 { slice(at: now + horizon) }
}

/// The age of a slot's contents, partly as the mailbox reports it.
package struct SlotAge: Hashable, Sendable {
    /// Time in the mailbox, as it reports it. It is added to the age of each content at its deposit.
    package var dwell: Milliseconds
    /// A lower bound of the age: the time since the slice ended, by the owner's clock.
    package var least: Milliseconds
    /// By the mailbox's word the slot was put before its slice began. So the mailbox lies, or the clock of sender or
    /// owner was stepped. The age counts, but the contents are not acknowledged: the sender keeps them for a link.
    package var isDoubtful: Bool

    package init(dwell: Milliseconds, least: Milliseconds = 0, isDoubtful: Bool = false) {
        (self.dwell, self.least, self.isDoubtful) = (dwell, least, isDoubtful)
    }
}

/// Public keys of consecutive slices of one owner.
package struct SliceKeys: Hashable, Sendable {
    package var agreement: AgreementID
    package var first: UInt32
    /// The owner's present slice, and the time from sending until that slice ends. No time of day is named.
    package var present: UInt32
    package var left: Milliseconds
    /// One for each slice from `first` on; at most ``Limits/sliceKeyCount``.
    package var keys: [PublicKey]

    package init(agreement: AgreementID, first: UInt32, present: UInt32, left: Milliseconds, keys: [PublicKey]) {
        (self.agreement, self.first, self.present, self.left, self.keys) = (agreement, first, present, left, keys)
    }
}

/// One member's slices as a sender knows them, by the sender's clock.
package struct KnownSlices: Hashable, Sendable, Codable {
    package private(set) var agreement: AgreementID
    private var first: UInt32
    /// The keys, 33 bytes each, in base64url, because each save of the conversation writes them.
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
    package var last: UInt32? { count == 0 ? nil : first + UInt32(count - 1) }

    /// Appends keys that follow, and takes the newer time.
    package mutating func add(_ message: SliceKeys, now: Timestamp) {
        guard message.agreement == agreement, message.keys.isEmpty || message.first == last.map({ $0 &+ 1 }) else {
            self = KnownSlices(message, now: now)
            return
        }
        // 33 bytes are 44 letters, so the texts can be joined.
        keys += Base64URL.encode(message.keys.flatMap(\.bytes))
        (present, presentEnds) = (message.present, now + message.left)
        let surplus = count - 2 * Limits.sliceKeyCount
        if surplus > 0 { forget(surplus) }
    }

    private mutating func forget(_ surplus: Int) {
        keys = String(keys.dropFirst(44 * surplus))
        first += UInt32(surplus)
    }

    /// The owner's slice at a time by our clock.
    package func slice(now: Timestamp, width: Milliseconds) -> UInt32 {
        let since = now - (presentEnds - width)
        let passed = since >= 0 ? since / width : -((-since + width - 1) / width)
        return UInt32(clamping: Int64(present) + passed)
    }

    /// The key for contents of this time, or the first known key for earlier ones; `nil` beyond the last known key.
    package func key(now: Timestamp, width: Milliseconds) -> (slice: UInt32, key: PublicKey)? {
        let slice = max(first, slice(now: now, width: width))
        guard slice - first < UInt32(count) else { return nil }
        let start = keys.utf8.index(keys.startIndex, offsetBy: 44 * Int(slice - first))
        let text = keys[start..<keys.utf8.index(start, offsetBy: 44)]
        guard let bytes = Base64URL.decode(text), let key = try? PublicKey(bytes) else { return nil }
        return (slice, key)
    }

    package mutating func prune(now: Timestamp, width: Milliseconds) {
        let present = slice(now: now, width: width)
        guard present > first else { return }
        forget(min(Int(present - first), max(0, count - 1)))
    }
}
