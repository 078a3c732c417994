/// How long one message is kept, and how reading changes that. No two clocks are compared: the age is by the sender's
/// clock, the rest by ours (Lifetime.md, "Contents").
package struct Retention: Hashable, Sendable {
    package enum OnReading: Hashable, Sendable {
        /// Unread, it expires earlier; read, at this time.
        case until(Timestamp)
        /// The lifetime starts with reading; milliseconds.
        case after(Milliseconds)
    }

    package var expiresAt: Timestamp
    /// `nil`: reading changes nothing.
    package var onReading: OnReading?
    /// Its expiry class in the store.
    package var tier: Lifetime
    /// `false`: our own cap keeps it off the disk.
    package var isStored = true

    /// - Parameter age: at transmission, by the sender's clock; clamped to 0…its longest life.
    /// - Returns: `nil` when the terms do not keep it.
    package static func received(
        _ kind: ContentKind, under terms: LifetimeTerms, age: Milliseconds, cap: LifetimeCap, now: Timestamp
    ) -> Retention? {
        guard let length = terms.lifetime(of: kind).milliseconds, let unread = terms.unreadTime(of: kind) else {
            return nil
        }
        let onReading: OnReading?
        switch terms.timer {
        case .send: onReading = unread < length ? .until(now + (length - min(max(age, 0), length))) : nil
        case .read: onReading = .after(length)
        }
        let left = unread - min(max(age, 0), unread)
        return Retention(expiresAt: now + left, onReading: onReading, tier: .holding(unread)).capped(cap, now: now)
    }

    /// For our own message: sending counts as reading.
    /// - Returns: `nil` when the terms do not keep it.
    package static func sent(_ kind: ContentKind, under terms: LifetimeTerms, cap: LifetimeCap, now: Timestamp)
        -> Retention?
    {
        let lifetime = terms.lifetime(of: kind)
        guard let length = lifetime.milliseconds else { return nil }
        return Retention(expiresAt: now + length, onReading: nil, tier: lifetime).capped(cap, now: now)
    }

    private func capped(_ cap: LifetimeCap, now: Timestamp) -> Retention {
        guard case .atMost(let lifetime) = cap else { return self }
        var result = self
        guard let length = lifetime.milliseconds else {
            result.isStored = false
            return result
        }
        result.expiresAt = min(expiresAt, now + length)
        result.tier = min(tier, lifetime)
        switch onReading {
        case nil: break
        case .until(let end): result.onReading = .until(min(end, now + length))
        // The cap counts from arrival, so the unread deadline moves earlier by the lifetime after reading.
        case .after(let time) where time < length: result.expiresAt = min(result.expiresAt, now + length - time)
        case .after: result.onReading = .until(now + length)
        }
        return result
    }
}

extension Message {
    /// The message after reading; `nil` when reading changes nothing, or comes too late.
    package func opened(at now: Timestamp) -> Message? {
        // An incomplete file cannot be opened.
        guard let onReading, state != .receiving, let expiresAt, expiresAt > now else { return nil }
        var message = self
        message.onReading = nil
        switch onReading {
        case .until(let end): message.expiresAt = end
        case .after(let time): message.expiresAt = now + time
        }
        return message
    }
}

extension Lifetime {
    /// The shortest lifetime of at least `time`, or else the longest one.
    package static func holding(_ time: Milliseconds) -> Lifetime {
        allCases.first { $0.milliseconds.map { $0 >= time } ?? false } ?? .thirtyDays
    }
}
