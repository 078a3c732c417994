/// How long one message stays, and what changes when it is read. No two clocks are compared: the age counts by the
/// sender's, the rest by ours (section 6, points 7 and 12).
package struct Retention: Hashable, Sendable {
    /// What reading makes of the expiry.
    package enum OnReading: Hashable, Sendable {
        /// It was to go unopened; read, it stays until then.
        case until(Timestamp)
        /// Its time begins with reading; milliseconds.
        case after(Milliseconds)
    }

    /// When it goes.
    package var expiresAt: Timestamp
    /// `nil`: reading changes nothing.
    package var onReading: OnReading?
    /// Which class of the store it belongs to.
    package var tier: Lifetime
    /// `false`: one's own cap keeps it off the disk.
    package var isStored = true

    /// Of a message from another member.
    /// - Parameter age: of the content when it was sent, by its sender's clock; clamped to 0…its longest life.
    /// - Returns: `nil` for what the terms do not keep.
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

    /// Of a message of one's own: sending it was reading it.
    /// - Returns: `nil` for what the terms do not keep.
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
        // However late it is read, it is gone when the bound says so.
        case .after(let time) where time < length: result.expiresAt = min(result.expiresAt, now + length - time)
        case .after: result.onReading = .until(now + length)
        }
        return result
    }
}

extension Message {
    /// The message once it has been read; `nil` when reading changes nothing, or comes too late.
    package func opened(at now: Timestamp) -> Message? {
        // A file that is still coming has not been opened.
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
    /// The shortest lifetime that holds this long; the longest there is for what is longer.
    package static func holding(_ time: Milliseconds) -> Lifetime {
        allCases.first { $0.milliseconds.map { $0 >= time } ?? false } ?? .thirtyDays
    }
}
