import Cryptography
import Foundation
import Messaging
import Testing

@Suite("Mailbox: slices of time") struct MailboxSliceTests {
    private static let agreement = AgreementID(unchecked: [UInt8](repeating: 1, count: 32))
    private static let other = AgreementID(unchecked: [UInt8](repeating: 2, count: 32))
    private static let points: [PublicKey] = {
        var random = Randomness.seeded(1)
        return (0..<32).map { _ in makeKey(&random).publicKey }
    }()

    private func key(_ slice: UInt32) -> PublicKey { Self.points[Int(slice % 32)] }

    private func message(
        _ slices: ClosedRange<UInt32>?, present: UInt32, left: Milliseconds = 100,
        _ agreement: AgreementID = MailboxSliceTests.agreement
    ) -> SliceKeys {
        SliceKeys(
            agreement: agreement, first: slices?.lowerBound ?? 0, present: present, left: left,
            keys: slices.map { $0.map(key) } ?? [])
    }

    @Test("the age of a slot's contents comes from the mailbox, is bounded below by the slice, and doubtful before it")
    func ages() {
        let schedule = SliceSchedule(.oneHour)
        let start = schedule.end(of: 999)
        let tolerance = Limits.sliceTolerance
        func age(_ dwell: Milliseconds, since: Milliseconds) -> SlotAge {
            schedule.age(in: 1_000, dwell: dwell, now: start + since)
        }
        #expect(age(0, since: 0) == SlotAge(dwell: 0) && age(.minute, since: .minute) == SlotAge(dwell: .minute))
        #expect(age(-1, since: .minute) == SlotAge(dwell: 0) && age(.min, since: .minute) == SlotAge(dwell: 0))
        #expect(age(.minute + tolerance, since: .minute) == SlotAge(dwell: .minute + tolerance))
        let doubtful = SlotAge(dwell: .minute + tolerance + 1, isDoubtful: true)
        #expect(age(.minute + tolerance + 1, since: .minute) == doubtful)
        #expect(age(.max, since: .minute) == SlotAge(dwell: .max, isDoubtful: true))
        // After the slice.
        #expect(age(0, since: .hour) == SlotAge(dwell: 0, least: 45 * .minute))
        #expect(age(.hour, since: .hour) == SlotAge(dwell: .hour, least: 45 * .minute))
        #expect(age(2 * .hour, since: .hour) == SlotAge(dwell: 2 * .hour, least: 45 * .minute, isDoubtful: true))
        // Before the slice: a clock was stepped.
        #expect(age(0, since: -.hour) == SlotAge(dwell: 0))
        #expect(age(tolerance, since: -.hour) == SlotAge(dwell: tolerance))
        #expect(age(tolerance + 1, since: -.hour) == SlotAge(dwell: tolerance + 1, isDoubtful: true))
    }

    @Test func `each lifetime has its width, its class and its horizon`() {
        let all: [(LifetimeTerms, Milliseconds, Milliseconds, Milliseconds, Lifetime)] = [
            (LifetimeTerms(.ephemeral, mailbox: .ram), 3 * .hour, .day, 7 * .day, .oneDay),
            (.oneHour, 15 * .minute, .hour, .day, .oneHour), (.sixHours, .hour, 6 * .hour, 7 * .day, .sixHours),
            (.oneDay, 3 * .hour, .day, 7 * .day, .oneDay), (.sevenDays, 12 * .hour, 7 * .day, 7 * .day, .sevenDays),
            (.thirtyDays, 12 * .hour, 30 * .day, 7 * .day, .thirtyDays),
            // The longest lifetime counts; a content that is not kept does not.
            (LifetimeTerms(.oneHour, attachment: .sevenDays), 12 * .hour, 7 * .day, 7 * .day, .sevenDays),
            (LifetimeTerms(.sevenDays, attachment: .ephemeral), 12 * .hour, 7 * .day, 7 * .day, .sevenDays),
            (LifetimeTerms(.ephemeral, attachment: .oneHour), 15 * .minute, .hour, .day, .oneHour),
            // Unopened contents expire earlier.
            (LifetimeTerms(.sevenDays, unopened: .hour), 15 * .minute, .hour, .day, .oneHour),
            (LifetimeTerms(.sevenDays, unopened: .hour + 1), .hour, .hour + 1, 7 * .day, .sixHours),
            (LifetimeTerms(.oneHour, unopened: 7 * .day), 15 * .minute, .hour, .day, .oneHour),
            // Timed from reading: they wait as long as they may.
            (LifetimeTerms(.oneHour, timer: .read), 12 * .hour, 30 * .day, 7 * .day, .thirtyDays),
            (LifetimeTerms(.oneHour, unopened: .day, timer: .read), 3 * .hour, .day, 7 * .day, .oneDay),
        ]
        for (terms, width, unread, horizon, tier) in all {
            let schedule = SliceSchedule(terms)
            #expect(schedule.width == width && schedule.unread == unread, "\(terms.displayName)")
            #expect(schedule.horizon == horizon && schedule.tier == tier, "\(terms.displayName)")
            // One frame holds them all, and a sender keeps them all.
            let now = noon
            let count = schedule.last(at: now) - schedule.slice(at: now) + 1
            #expect(count <= UInt32(Limits.sliceKeyCount), "\(terms.displayName)")
            #expect(schedule.width < schedule.unread)
        }
    }

    @Test func `a slice begins at its first millisecond, and its key outlives its contents by no more than a width`() {
        for terms in [LifetimeTerms.oneHour, .sixHours, .oneDay, .thirtyDays] {
            let schedule = SliceSchedule(terms)
            let slice = schedule.slice(at: noon)
            let end = schedule.end(of: slice)
            #expect(end > noon && end - noon <= schedule.width)
            #expect(schedule.slice(at: end - 1) == slice && schedule.slice(at: end) == slice + 1)
            #expect(schedule.end(of: slice + 1) - end == schedule.width)
            #expect(schedule.keyEnd(of: slice) - end == schedule.unread)
            #expect(schedule.last(at: end - 1) == schedule.slice(at: end - 1 + schedule.horizon))
        }
        let schedule = SliceSchedule(.oneHour)
        #expect(schedule.slice(at: Timestamp(milliseconds: 0)) == 0)
        // Times far in the future do not trap.
        #expect(schedule.slice(at: .latest) == schedule.last(at: .latest))
        #expect(schedule.end(of: .max) == .latest && schedule.keyEnd(of: .max) == .latest)
    }

    private let width: Milliseconds = 1_000

    private func slice(_ known: KnownSlices, _ now: Timestamp) -> UInt32? {
        guard let found = known.key(now: now, width: width) else { return nil }
        #expect(found.key == key(found.slice))
        return found.slice
    }

    @Test func `the sender's clock picks the key of the owner's slice, before, at and after the end of each`() {
        let known = KnownSlices(message(10...20, present: 10, left: 300), now: noon)
        #expect(known.last == 20 && known.agreement == Self.agreement)
        for step in 0..<10 as Range<Int64> {
            let end = noon + 300 + step * width
            #expect(slice(known, end - 1) == 10 + UInt32(step) && slice(known, end) == 11 + UInt32(step))
        }
        #expect(slice(known, noon + 300 + 10 * width - 1) == 20)
        #expect(slice(known, noon + 300 + 10 * width) == nil, "the owner has made none for so late")
        #expect(slice(known, noon + 30 * .day) == nil && known.key(now: .latest, width: 1) == nil)
        // The clock was set back: the first known slice, whose key ends no sooner.
        #expect(slice(known, noon - .day) == 10)
        // Contents from before the first known key use the first.
        let later = KnownSlices(message(12...14, present: 10, left: 300), now: noon)
        #expect(slice(later, noon) == 12 && slice(later, noon + 300) == 12 && slice(later, noon + 2_300) == 13)
        #expect(KnownSlices(message(nil, present: 3), now: noon).last == nil)
        #expect(KnownSlices(message(nil, present: 3), now: noon).key(now: noon, width: width) == nil)
    }

    @Test func `keys arrive in steps, and each step carries a newer time`() {
        var known = KnownSlices(message(10...13, present: 10, left: 1_000), now: noon)
        known.add(message(14...17, present: 10, left: 900), now: noon + 100)
        #expect(known.last == 17 && slice(known, noon + 999) == 10 && slice(known, noon + 1_000) == 11)
        // The owner's clock is ahead of our estimate.
        known.add(message(18...18, present: 12, left: 1), now: noon + 200)
        #expect(known.last == 18 && slice(known, noon + 200) == 12 && slice(known, noon + 201) == 13)
        // A frame without keys only carries the time.
        known.add(message(nil, present: 15, left: 500), now: noon + 300)
        #expect(known.last == 18 && slice(known, noon + 799) == 15 && slice(known, noon + 800) == 16)
        known.add(message(nil, present: 11, left: 500), now: noon + 300)
        #expect(known.last == 18 && slice(known, noon + 300) == 11, "also when it goes back")
    }

    @Test func `keys that do not follow replace the known ones: a gap, a repeat, another agreement`() {
        let first = KnownSlices(message(10...13, present: 10), now: noon)
        for slices in [15...16, 10...13, 12...14, 1...2] as [ClosedRange<UInt32>] {
            var known = first
            known.add(message(slices, present: 10), now: noon)
            #expect(known == KnownSlices(message(slices, present: 10), now: noon))
        }
        var known = first
        known.add(message(14...15, present: 14, Self.other), now: noon)
        #expect(known.agreement == Self.other && known.last == 15 && slice(known, noon) == 14)
        known = first
        known.add(message(nil, present: 14, Self.other), now: noon)
        #expect(known.agreement == Self.other && known.last == nil)
        known.add(message(14...15, present: 14, Self.other), now: noon)
        #expect(known.last == 15 && slice(known, noon) == 14)
    }

    @Test func `keys of past slices are forgotten, except the last`() throws {
        var known = KnownSlices(message(10...20, present: 10, left: 300), now: noon)
        let whole = known
        known.prune(now: noon + 299, width: width)
        #expect(known == whole)
        known.prune(now: noon + 300 + 4 * width, width: width)
        #expect(known.last == 20 && slice(known, noon + 300 + 4 * width) == 15)
        #expect(slice(known, noon) == 15, "earlier ones are gone")
        known.prune(now: noon + .day, width: width)
        #expect(known.last == 20)
        known.add(message(21...22, present: 20), now: noon)
        #expect(known.last == 22 && slice(known, noon) == 20)
        var none = KnownSlices(message(nil, present: 3), now: noon)
        none.prune(now: noon + .day, width: width)
        #expect(none.last == nil)
    }

    @Test func `known slices survive their record unchanged`() throws {
        for known in [
            KnownSlices(message(10...20, present: 11, left: 300), now: noon),
            KnownSlices(message(nil, present: 11, left: 300), now: noon),
        ] {
            let again = try JSONDecoder().decode(KnownSlices.self, from: JSONEncoder().encode(known))
            #expect(again == known && again.last == known.last)
            #expect(again.key(now: noon + 400, width: width)?.key == known.key(now: noon + 400, width: width)?.key)
        }
    }

    @Test func `at most two frames of keys are kept: the newest`() {
        let step = UInt32(Limits.sliceKeyCount)
        var known = KnownSlices(message(0...(step - 1), present: 0), now: noon)
        known.add(message(step...(2 * step - 1), present: 0), now: noon)
        #expect(known.last == 2 * step - 1 && slice(known, noon) == 0)
        known.add(message((2 * step)...(2 * step), present: 1), now: noon)
        #expect(known.last == 2 * step && slice(known, noon) == 1)
        known.add(message((2 * step + 1)...(3 * step), present: 1), now: noon)
        #expect(known.last == 3 * step && slice(known, noon) == step + 1)
        known.add(message(nil, present: step + 1), now: noon)
        #expect(slice(known, noon) == step + 1)
    }

    @Test func `numbers at the limit of a slice do not trap`() {
        // The wire allows no slice number beyond these.
        var known = KnownSlices(message((.max - 3)...(.max - 1), present: .max - 2, left: 10), now: noon)
        let last = UInt32.max - 1
        #expect(known.last == last && slice(known, noon) == last - 1 && slice(known, noon + 10) == last)
        #expect(slice(known, noon + .day) == nil)
        known.add(message(nil, present: .max, left: 10), now: noon)
        #expect(slice(known, noon) == nil)
        known.prune(now: noon + .day, width: width)
        #expect(known.last == last)
    }
}
