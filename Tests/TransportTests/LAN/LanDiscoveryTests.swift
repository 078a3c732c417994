import Cryptography
import Testing
import Transport

@Suite("LAN discovery") struct LanDiscoveryTests {
    @Test func `A node that announces is found, and finds the node that answers`() throws {
        var (ann, bob, announcement) = try announced()
        let heard = bob.receive(announcement, from: 1)
        #expect(heard.first == .found(22, source(1), port: 7_440))
        let answer = try #require(heard.answers.first)
        #expect(ann.receive(answer, from: 2, port: 6_000) == [.found(11, source(2, port: 6_000), port: 7_440)])
    }

    @Test func `A sleeping inbox is found and answers, and does not announce`() throws {
        var (_, bob, announcement) = try announced()
        bob.discovery.setAnnouncing(22, nil)
        #expect(bob.announcements(missing: [22]).isEmpty)
        #expect(bob.receive(announcement, from: 1).answers.count == 1)
        bob.discovery.setAnnouncing(22, lanSecret(2))
        bob.discovery.stir(now: bob.now, using: &bob.random)
        #expect(bob.announcements(missing: [22]).count == 1)
    }

    @Test("A node without a listener on this network neither announces nor answers, but still finds peers")
    func portless() throws {
        var (_, bob, announcement) = try announced()
        bob.setInterfaces(port: nil)
        #expect(bob.announcements(missing: [22]).isEmpty)
        #expect(bob.receive(announcement, from: 1) == [.found(22, source(1), port: 7_440)])
    }

    @Test func `Two nodes find each other when their clocks differ by up to an hour, and not beyond`() throws {
        for (difference, isFound) in [(60, true), (-60, true), (90, false), (-90, false)] as [(Int64, Bool)] {
            var (ann, bob) = pair()
            bob.now += difference * 60_000
            let announcement = try ann.announcement(11)
            #expect(bob.receive(announcement, from: 1).found == (isFound ? [22] : []), "\(difference) min")
        }
    }

    @Test func `The tags follow the time: by a slot, by many, and across the end of a slot`() throws {
        for slots in [1, 3, 9, 10, 1_000] as [Int64] {
            var (ann, bob) = pair()
            _ = bob.discovery.advance(now: bob.now, missing: { [] }, using: &bob.random)
            ann.now += slots * LanLimits.slotLength
            bob.now = ann.now
            let announcement = try ann.announcement(11)
            #expect(bob.receive(announcement, from: 1).found == [22])
        }
    }

    @Test("A joiner finds the creator of its invite, the creator does not dial, and other joiners hear nothing")
    func invite() throws {
        var creator = TestMachine(1)
        var (joiner, other) = (TestMachine(2), TestMachine(3))
        creator.discovery.add(5, listening: lanSecret(9), announcing: nil)
        joiner.discovery.add(6, listening: nil, announcing: lanSecret(9))
        other.discovery.add(7, listening: nil, announcing: lanSecret(9))
        #expect(creator.announcements(missing: [5]).isEmpty)
        let announcement = try joiner.announcement(6)
        #expect(other.receive(announcement, from: 2).isEmpty)
        let answer = try #require(creator.receive(announcement, from: 2).answers.first)
        #expect(other.receive(answer, from: 1).isEmpty)
        #expect(joiner.receive(answer, from: 1).found == [6])
        joiner.discovery.remove(6)
        joiner.now += 3 * LanLimits.slotLength
        #expect(joiner.announcements(missing: [6]).isEmpty)
    }

    @Test func `The waits are 2 s, 4 s … 60 s, each a quarter more or less, until no peer is missing`() {
        var (ann, _) = pair()
        var last: Int64?
        for wait in [0, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] as [Int64] {
            #expect(!ann.advance(missing: [11]).isEmpty)
            if let last { #expect((wait * 3 / 4...wait * 5 / 4).contains(ann.now - last), "\(wait)") }
            last = ann.now
        }
        #expect(ann.advance(missing: []).isEmpty)
        #expect(ann.discovery.nextDeadline == nil)
    }

    @Test func `A peer that has just gone missing is announced soon, at least 2 s after the last announcement`() {
        var (ann, _) = pair()
        ann.add(12, announces: 5, hears: 6)
        #expect(ann.discovery.nextDeadline.map { $0 - ann.now < LanLimits.gathering } == true)
        for _ in 0..<6 { _ = ann.advance(missing: [11]) }
        let last = ann.now
        for _ in 0..<100 { ann.discovery.stir(now: ann.now, using: &ann.random) }
        #expect(!ann.advance(missing: [11, 12]).isEmpty)
        #expect((LanLimits.waitFirst..<LanLimits.waitFirst + LanLimits.gathering).contains(ann.now - last))
        let next = ann.now
        #expect(!ann.advance(missing: [11, 12]).isEmpty)
        #expect((1_500...2_500).contains(ann.now - next))
    }

    @Test func `A stir without news announces nothing and keeps the wait; a link lost again is news`() {
        var (ann, _) = pair()
        for _ in 0..<6 { _ = ann.advance(missing: [11]) }
        let due = ann.discovery.nextDeadline
        ann.now += 5_000
        ann.discovery.stir(now: ann.now, using: &ann.random)
        #expect(ann.advance(missing: [11]).isEmpty)
        #expect(ann.discovery.nextDeadline == due)
        ann.discovery.linked(11)
        ann.discovery.stir(now: ann.now, using: &ann.random)
        #expect(!ann.advance(missing: [11]).isEmpty)
        #expect(ann.discovery.nextDeadline.map { $0 - ann.now < 2_501 } == true)
    }

    /// quiet: no peer is missing. due: an announcement is due.
    enum Start: CaseIterable { case quiet, due }

    private func machine(_ start: Start) -> TestMachine {
        var (ann, _) = pair()
        _ = ann.advance(missing: start == .quiet ? [] : [11])
        return ann
    }

    @Test(arguments: Start.allCases) func `Every event in every state has the expected effect`(start: Start) throws {
        var (_, bob) = pair()
        let announced = try bob.announcement(22)
        // The deadline passes with a missing peer, without one, and too early.
        var ann = machine(start)
        #expect(ann.advance(missing: [11]).isEmpty == (start == .quiet))
        ann = machine(start)
        #expect(ann.advance(missing: []).isEmpty)
        #expect(ann.discovery.nextDeadline == nil)
        ann = machine(start)
        var wasAsked = false
        let early = ann.discovery.advance(
            now: noon - 1_000,
            missing: {
                wasAsked = true
                return [11]
            }, using: &ann.random)
        #expect(early.isEmpty && !wasAsked, "\(start)")
        ann = machine(start)
        ann.discovery.stir(now: ann.now, using: &ann.random)
        #expect(ann.advance(missing: [11]).count == (start == .quiet ? 1 : 0))
        ann.now += LanLimits.waitFirst
        ann.discovery.stir(now: ann.now, using: &ann.random)
        _ = ann.advance(missing: [])
        #expect(ann.discovery.nextDeadline == nil)
        ann = machine(start)
        ann.discovery.linked(11)
        #expect((ann.discovery.nextDeadline == nil) == (start == .quiet))
        // The same interfaces; a new address; none.
        ann = machine(start)
        ann.setInterfaces()
        #expect((ann.discovery.nextDeadline == nil) == (start == .quiet))
        ann.setInterfaces(9)
        #expect(ann.discovery.nextDeadline != nil)
        ann.discovery.setInterfaces([], now: ann.now, using: &ann.random)
        #expect(ann.advance(missing: [11]).isEmpty)
        // A received datagram changes neither state.
        ann = machine(start)
        let deadline = ann.discovery.nextDeadline
        #expect(ann.receive(announced, from: 2).found == [11])
        #expect(ann.receive([1, 2, 3], from: 2).isEmpty)
        #expect(ann.discovery.nextDeadline == deadline)
        ann = machine(start)
        ann.add(12, announces: 3, hears: 4)
        ann.discovery.remove(11)
        #expect(ann.discovery.nextDeadline == deadline && ann.discovery.pairCount == 1)
        #expect(ann.receive(announced, from: 2).isEmpty)
    }

    @Test func `Two announcements in different slots, or of different pairs, have nothing in common`() throws {
        var (ann, bob) = pair()
        var seen: Set<UInt64> = []
        for _ in 0..<20 {
            for machine in [0, 1] {
                let bytes = machine == 0 ? ann.announcements(missing: [11]) : bob.announcements(missing: [22])
                let datagram = try #require(bytes.first.flatMap { LanDatagram($0) })
                for entry in datagram.entries {
                    #expect(seen.insert(entry.tag).inserted)
                    #expect(seen.insert(entry.proof).inserted)
                }
                #expect(seen.insert(datagram.nonce).inserted)
            }
            ann.now += LanLimits.slotLength
            bob.now += LanLimits.slotLength
        }
    }

    @Test func `Datagram sizes reveal the number of conversations only to a power of two, and at least 8`() {
        for (count, sizes) in [
            (1, [140]), (8, [140]), (9, [268]), (16, [268]), (17, [524]), (33, [1_036]), (64, [1_036]),
            (65, [1_036, 1_036]), (129, [1_036, 1_036, 1_036, 1_036]), (500, [Int](repeating: 1_036, count: 8)),
            (2_000, [Int](repeating: 1_036, count: 8)),
        ] {
            let all = Array(0..<UInt64(count))
            var (ann, _) = machines(all)
            #expect(ann.announcements(missing: all).map(\.count) == sizes, "\(count)")
        }
    }

    @Test func `With more pairs than an announcement holds, all take turns`() throws {
        let all = Array(0..<1_300 as Range<UInt64>)
        var (ann, bob) = machines(all)
        var found: Set<UInt64> = []
        for round in 1...3 {
            let announcements = ann.announcements(missing: all)
            #expect(announcements.count == LanLimits.announcedCount / LanLimits.entriesMost)
            bob.now = ann.now + 60_000 * Int64(round)
            for bytes in announcements { found.formUnion(bob.receive(bytes, from: 1).found) }
        }
        #expect(found == Set(all))
    }

    @Test func `Strangers, and peers of other conversations, hear nothing`() throws {
        var (_, bob, announcement) = try announced()
        var carl = TestMachine(3)
        carl.add(33, announces: 5, hears: 6)
        #expect(carl.receive(announcement, from: 1).isEmpty)
        #expect(carl.discovery.counts.foreign == 1)
        var random = SplitMix64(state: 3)
        for count in [8, 64] {
            let entries = (0..<count).map { _ in LanDatagram.Entry(tag: random.next(), proof: random.next()) }
            for kind in [LanDatagram.Kind.announcement, .answer] {
                let bytes = LanDatagram(kind, port: 1, nonce: 1, entries: entries, using: &random).bytes
                #expect(bob.receive(bytes, from: 9).isEmpty)
            }
        }
    }

    @Test func `An announcement replayed from another address, or with another port, has no effect`() throws {
        var (_, bob, announcement) = try announced()
        #expect(bob.receive(announcement, from: 66).isEmpty)
        var changed = announcement
        changed[3] ^= 1
        #expect(bob.receive(changed, from: 1).isEmpty)
        changed = announcement
        changed[4] ^= 1
        #expect(bob.receive(changed, from: 1).isEmpty)
        #expect(bob.discovery.counts.forged == 3)
        #expect(bob.receive(announcement, from: 1).found == [22])
    }

    @Test("An announcement repeated from its own address is reported once in 10 s, until its slot is over")
    func replayInPlace() throws {
        var (_, bob, announcement) = try announced()
        var found = 0
        let start = bob.now
        while bob.now - start < 60_000 {
            found += bob.receive(announcement, from: 1).found.count
            bob.now += 100
        }
        #expect(found == 6)
        bob.now = start + (LanLimits.slotTolerance + 1) * LanLimits.slotLength
        #expect(bob.receive(announcement, from: 1).isEmpty)
    }

    @Test func `A peer that keeps changing its address makes the node dial at most once a second`() throws {
        var (_, bob) = pair()
        var found = 0
        let start = bob.now
        var host: UInt8 = 1
        while bob.now - start < 10_000 {
            host = host % 200 + 10
            let proof = lanSecret(1).proof(
                slot: bob.now / LanLimits.slotLength, nonce: 9, port: 7, address: IPAddress(10, 0, 0, host))
            let entry = LanDatagram.Entry(tag: lanSecret(1).tag(slot: bob.now / LanLimits.slotLength), proof: proof)
            let bytes = LanDatagram(.announcement, port: 7, nonce: 9, entries: [entry], using: &bob.random).bytes
            found += bob.receive(bytes, from: host).found.count
            bob.now += 50
        }
        #expect(found == 10)
    }

    @Test func `A node ignores its own announcement, also when it is sent back`() throws {
        var (ann, _, announcement) = try announced()
        #expect(ann.receive(announcement, from: 1).isEmpty)
        #expect(ann.receive(announcement, from: 66).isEmpty)
        ann.now += 60_000
        #expect(ann.receive(announcement, from: 66).isEmpty)
        #expect(ann.discovery.counts.foreign == 1)
    }

    @Test func `An answer counts only for its question, for 10 s, from the asked peer at its address`() throws {
        var (ann, bob, announcement) = try announced()
        let answer = try #require(bob.receive(announcement, from: 1).answers.first)
        #expect(ann.receive(answer, from: 66).isEmpty)
        var changed = answer
        changed[3] ^= 1
        #expect(ann.receive(changed, from: 2).isEmpty)
        #expect(ann.discovery.counts.forged == 2)
        changed = answer
        changed[11] ^= 1
        #expect(ann.receive(changed, from: 2).isEmpty)
        var late = ann
        late.now += LanLimits.questionLifetime + 1
        #expect(late.receive(answer, from: 2).isEmpty)
        #expect(bob.receive(answer, from: 2).isEmpty)
        #expect(ann.receive(answer, from: 2).found == [11])
        changed = announcement
        changed[1] = LanDatagram.Kind.answer.rawValue
        #expect(ann.receive(changed, from: 1).isEmpty)
    }

    @Test func `An answer is never larger than the question`() throws {
        for count in [1, 7, 8, 9, 16, 17, 40, 64] {
            let all = Array(0..<UInt64(count))
            var (ann, bob) = machines(all)
            let announcement = try #require(ann.announcements(missing: all).first)
            let heard = bob.receive(announcement, from: 1)
            #expect(heard.found.sorted() == all && heard.answers.count == 1)
            #expect(heard.answers[0].count <= announcement.count)
            #expect(ann.receive(heard.answers[0], from: 2).found.sorted() == all)
        }
    }

    @Test("A sender outside the network is ignored: another prefix or interface, a multicast group, loopback, port 0")
    func far() throws {
        var (_, bob, announcement) = try announced()
        for source in [
            LanPlace(interface: 7, address: IPAddress(10, 0, 1, 1), port: 5),
            LanPlace(interface: 8, address: IPAddress(10, 0, 0, 1), port: 5),
            LanPlace(interface: 7, address: IPAddress(239, 255, 0, 1), port: 5),
            LanPlace(interface: 7, address: IPAddress(127, 0, 0, 1), port: 5),
            LanPlace(interface: 7, address: IPAddress(10, 0, 0, 1), port: 0),
            LanPlace(interface: 7, address: IPAddress(high: 0xfe80_0000_0000_0000, low: 1), port: 5),
        ] { #expect(bob.receive(announcement, from: source).isEmpty) }
        #expect(bob.discovery.counts.malformed == 6)
    }

    @Test func `In a flood from one address a few datagrams are read, and other senders are still heard`() throws {
        var (_, bob, announcement) = try announced()
        for _ in 0..<10_000 { _ = bob.receive([UInt8](repeating: 1, count: 1_036), from: 66) }
        #expect(bob.discovery.counts.dropped == 10_000 - UInt64(LanLimits.sourceBurst))
        #expect(bob.receive(announcement, from: 1).found == [22])
    }

    @Test func `A datagram dropped unread in a flood does not count against its sender`() throws {
        var (_, bob, announcement) = try announced()
        for host in UInt8(100)..<UInt8(100) + UInt8(LanLimits.totalBurst / LanLimits.sourceBurst) {
            for _ in 0..<LanLimits.sourceBurst { _ = bob.receive([1, 2], from: host) }
        }
        #expect(bob.discovery.counts.malformed == UInt64(LanLimits.totalBurst))
        // This would exceed the sender's own allowance three times.
        for _ in 0..<100 { _ = bob.receive([1, 2], from: 1) }
        #expect(bob.discovery.counts.dropped == 100)
        bob.now += 2 * LanLimits.totalInterval
        #expect(bob.receive(announcement, from: 1).found == [22])
    }

    @Test("A flood from all addresses is read only up to a bound, and recovery takes a second after it ends")
    func wideFlood() throws {
        var (_, bob, announcement) = try announced()
        bob.discovery.setInterfaces(
            [
                LanInterface(
                    index: 7, name: "eth0",
                    addresses: [LanInterface.Own(address: IPAddress(10, 0, 0, 2), prefixLength: 8, port: 7_440)])
            ], now: bob.now, using: &bob.random)
        for number in 0..<20_000 {
            let address = IPAddress(10, 1, UInt8(number >> 8 & 0xff), UInt8(number & 0xff))
            _ = bob.receive([1, 2], from: LanPlace(interface: 7, address: address, port: 9))
        }
        #expect(bob.discovery.counts.malformed == UInt64(LanLimits.totalBurst))
        bob.now += 1_100
        #expect(bob.receive(announcement, from: 1).found == [22])
    }

    @Test("One address gets 8 answers at once and one more a second, all addresses together 32 and 20 a second")
    func answerRates() throws {
        var (ann, bob) = pair()
        var announcements: [[UInt8]] = []
        for _ in 0..<20 { announcements += ann.announcements(missing: [11]) }
        var answers = 0
        for bytes in announcements { answers += bob.receive(bytes, from: 1).answers.count }
        #expect(answers == Int(LanLimits.answerBurst))
        bob.now += 3_000
        answers = 0
        for bytes in announcements.prefix(12) { answers += bob.receive(bytes, from: 1).answers.count }
        #expect(answers == 3)
    }

    @Test func `Pairs beyond the limit wait for a place, the first one next`() throws {
        var (ann, bob) = (TestMachine(1), TestMachine(2))
        let (shared, count) = (lanSecret(1), UInt64(LanLimits.pairCount))
        for number in 0..<count { ann.discovery.add(number, listening: shared, announcing: nil) }
        for more in 0...2 as ClosedRange<UInt64> {
            ann.add(count + more, announces: 10 + more, hears: 20 + more)
            bob.add(more, announces: 20 + more, hears: 10 + more)
        }
        let announced = try #require(bob.announcements(missing: [0, 1, 2]).first)
        #expect(ann.receive(announced, from: 2).found == [])
        for number in [count, 0] { ann.discovery.remove(number) }
        // A pair that is entered again keeps its place.
        ann.discovery.add(1, listening: shared, announcing: nil)
        #expect(ann.receive(announced, from: 2).found == [count + 1])
        #expect(ann.discovery.pairCount == LanLimits.pairCount)
    }
}
