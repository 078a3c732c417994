import Cryptography
import Messaging
import Testing

@Suite struct RetentionTests {
    private func received(
        _ terms: LifetimeTerms, _ kind: ContentKind = .text, age: Milliseconds = 0, cap: LifetimeCap = .none
    ) -> Retention? { Retention.received(kind, under: terms, age: age, cap: cap, now: noon) }

    @Test func `a lifetime counts from sending, by the stated age and the receiver's clock`() {
        #expect(received(.oneDay)?.expiresAt == noon + .day)
        #expect(received(.oneDay, age: .hour)?.expiresAt == noon + 23 * .hour)
        #expect(received(.oneDay, age: 2 * .day)?.expiresAt == noon)
        #expect(received(.oneDay, age: .min)?.expiresAt == noon + .day)
        #expect(received(.oneDay, age: .max)?.expiresAt == noon && received(.oneDay)?.onReading == nil)
        #expect(received(.ephemeral) == nil)
    }

    @Test func `attachments may have a lifetime of their own`() {
        let terms = LifetimeTerms(.oneHour, attachment: .sevenDays)
        #expect(received(terms)?.expiresAt == noon + .hour)
        #expect(received(terms, .attachment)?.expiresAt == noon + 7 * .day)
        #expect(received(terms, .attachment)?.tier == .sevenDays)
        let textOnly = LifetimeTerms(.oneHour, attachment: .ephemeral)
        #expect(received(textOnly, .attachment) == nil)
    }

    @Test func `an unopened message expires early, and an opened one keeps its lifetime`() {
        let terms = LifetimeTerms(.oneDay, unopened: 5 * .minute)
        let retention = received(terms, age: .minute)!
        #expect(retention.expiresAt == noon + 4 * .minute && retention.onReading == .until(noon + (.day - .minute)))
        #expect(retention.tier == .oneHour)
        // Longer than the lifetime: no effect.
        #expect(received(LifetimeTerms(.oneHour, unopened: .day))?.expiresAt == noon + .hour)
        #expect(received(LifetimeTerms(.oneHour, unopened: .day))?.onReading == nil)
    }

    @Test func `a timer from reading starts when the message is read`() {
        let terms = LifetimeTerms(.oneHour, timer: .read)
        #expect(received(terms)?.expiresAt == noon + 30 * .day && received(terms)?.onReading == .after(.hour))
        let quick = LifetimeTerms(.oneHour, unopened: .minute, timer: .read)
        #expect(received(quick)?.expiresAt == noon + .minute)
        // Our own copy counts as read when it was sent.
        let own = Retention.sent(.text, under: terms, cap: .none, now: noon)
        #expect(own?.expiresAt == noon + .hour && own?.onReading == nil)
    }

    @Test func `a cap shortens a lifetime and never lengthens it`() {
        #expect(received(.sevenDays, cap: .atMost(.oneDay))?.expiresAt == noon + .day)
        #expect(received(.oneHour, cap: .atMost(.oneDay))?.expiresAt == noon + .hour)
        #expect(received(.sevenDays, cap: .atMost(.ephemeral))?.isStored == false)
        #expect(received(.sevenDays, cap: .atMost(.ephemeral))?.expiresAt == noon + 7 * .day)
        let read = received(LifetimeTerms(.sevenDays, timer: .read), cap: .atMost(.oneHour))
        #expect(read?.expiresAt == noon + .hour && read?.onReading == .until(noon + .hour))
        // The cap holds for a late read: it must be read an hour before the cap ends.
        let late = received(LifetimeTerms(.oneHour, timer: .read), cap: .atMost(.oneDay))
        #expect(late?.expiresAt == noon + 23 * .hour && late?.onReading == .after(.hour))
        let unopened = received(LifetimeTerms(.sevenDays, unopened: .minute), cap: .atMost(.oneHour))
        #expect(unopened?.expiresAt == noon + .minute && unopened?.onReading == .until(noon + .hour))
        #expect(received(.ephemeral, cap: .atMost(.oneDay)) == nil)
    }

    @Test func `reading moves a message's expiry once, and never after it has expired`() {
        var random = Randomness.seeded(3)
        let content = Content(
            type: .text, id: MessageID.random(&random), sentAt: noon, lifetime: .oneDay, agreement: nil, fallback: "",
            shouldPush: true, payload: [65])
        let message = Message(
            content: content, sender: makeKey(&random).publicKey, state: .received, expiresAt: noon + .minute,
            onReading: .after(.hour))
        let opened = message.opened(at: noon + 30 * .second)
        #expect(opened?.expiresAt == noon + (30 * .second + .hour) && opened?.opened(at: noon + .minute) == nil)
        #expect(message.opened(at: noon + .minute) == nil)
    }

    @Test func `terms that keep nothing cannot have an unopened limit or a reading timer`() {
        #expect(LifetimeTerms.ephemeral.isValid && !LifetimeTerms(.ephemeral, unopened: .hour).isValid)
        #expect(!LifetimeTerms(.ephemeral, timer: .read).isValid)
        #expect(LifetimeTerms(.ephemeral, attachment: .oneDay, timer: .read).isValid)
        for wrong in [0, Milliseconds.minute - 1, 30 * .day + 1, .max, .min] {
            #expect(!LifetimeTerms(.oneDay, unopened: wrong).isValid)
        }
        #expect(LifetimeTerms(.oneDay, attachment: .oneDay) == .oneDay)
    }

    @Test func `a policy accepts only terms that keep messages no longer than it allows`() {
        let week = LifetimePolicy.acceptUpTo(.sevenDays)
        #expect(week.accepts(.oneDay) && week.accepts(.sevenDays) && week.accepts(.ephemeral))
        #expect(!week.accepts(.thirtyDays))
        #expect(!LifetimePolicy.ask.accepts(.ephemeral) && !LifetimePolicy.refuse.accepts(.ephemeral))
        #expect(!week.accepts(LifetimeTerms(.oneDay, attachment: .thirtyDays)))
        // Unread, it may stay for thirty days.
        #expect(!week.accepts(LifetimeTerms(.oneDay, timer: .read)))
        #expect(week.accepts(LifetimeTerms(.oneDay, unopened: .day, timer: .read)))
        #expect(LifetimeCap("none") == LifetimeCap.none && LifetimeCap("1d") == .atMost(.oneDay))
        #expect(LifetimeCap("2d") == nil)
    }
}
