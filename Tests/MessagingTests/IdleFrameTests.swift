import Cryptography
import Messaging
import TestSupport
import Testing

/// Frames without effect that member 2 may send to member 1 at any rate.
private enum Idle: String, CaseIterable {
    case later, pong, session, acknowledgement, foreign, receipt, chunk, gone, group, departure, joinCancelled
    case invitation, relayRequest, relayAnswer, punch, rejection, withdrawal, proposal, notice, description, crowded
    // Answered, without another effect.
    case ping, known, late, request, oldDescription

    func frame(_ number: Int, _ all: inout World, known message: Content) throws -> Frame {
        let attacker = 2
        let own = all.keys[attacker]
        let machine = try #require(all.machine(attacker))
        func random() -> MessageID { .random(&all.random) }
        switch self {
        case .later: return .unknown
        case .pong: return .pong(UInt64(number))
        case .session: return .session(SessionStart(reset: false, inForce: nil, head: nil, renewable: nil))
        case .acknowledgement: return .acknowledgement(random(), stored: true)
        case .foreign: return .content(all.text("x", id: random(), by: attacker), age: 0)
        case .receipt: return .receipt(Receipt(.read, [random()]))
        case .chunk:
            return .attachmentChunk(AttachmentChunk(message: random(), index: 0, isDeflated: false, bytes: [1]))
        case .gone: return .attachmentGone(random())
        case .group: return .group(GroupUpdate(state: machine.record.group, members: [], departures: []))
        case .departure:
            let nobody = makeKey(&all.random).publicKey
            let signature = machine.record.group.signature
            return .memberLeft(Departure(conversation: all.conversation, member: nobody, signature: signature))
        case .joinCancelled: return .joinCancelled
        case .invitation: return .invitation(Invitation(id: random(), slug: "mayfly:join/x", name: nil))
        case .relayRequest: return .relayRequest(.reserve([]))
        case .relayAnswer:
            return .relayAnswer(
                .incoming(RelayStreamID(UInt32(number)), ReservationID(unchecked: [UInt8](repeating: 1, count: 16))))
        case .punch:
            let nonce = try #require(PunchNonce(all.random.bytes(16)))
            return .punch(PunchMessage(step: .offer, nonce: nonce, candidates: []))
        case .rejection: return .lifetime(.reject(.random(&all.random), .userDeclined))
        case .withdrawal: return .lifetime(.withdraw(.random(&all.random)))
        case .proposal:
            // Beyond the rate no signature is checked.
            var wish = LifetimeProposal(
                conversation: all.conversation, membership: machine.record.group.membership, epoch: UInt64(number),
                previous: .none, terms: .oneDay, proposedAt: all.now, nonce: all.random.bytes(16),
                proposer: own.publicKey)
            if number <= Limits.proposalRate.burst { return .lifetime(.proposal(wish.signed(by: own, &all.random))) }
            wish.signature = machine.record.group.signature
            return .lifetime(.proposal(wish))
        case .notice: return .explosion(try #require(machine.record.schedule).notice.sealed(&all.random))
        case .description:
            let version = machine.record.own.version + UInt64(number)
            return .profile(Member(profile: "x", endpoints: [], version: version, key: own, &all.random))
        case .crowded: return .content(all.text(String(repeating: "x", count: 30_000), by: attacker), age: 0)
        case .ping: return .ping(UInt64(number))
        case .known: return .content(message, age: 0)
        case .late: return .content(all.text("x", by: attacker, lifetime: .oneHour), age: .hour)
        case .request: return .attachmentRequest(random(), first: 0, count: 1)
        case .oldDescription: return .profile(machine.record.own)
        }
    }

    var firstOnes: Int {
        switch self {
        case .proposal: Limits.proposalRate.burst
        case .description: Limits.profileRate.burst
        case .notice: 1
        // As many as the memory of an inbox takes.
        case .crowded: Limits.memoryByteCount / 30_000
        default: 0
        }
    }
}

/// A node with a contact inbox that is an open rendezvous node.
struct RendezvousNode {
    var random = Randomness.seeded(5)
    var node = NodeStateMachine()
    let client: ClientID
    let key: IdentityKey
    let user: IdentityKey
    let holder = LinkID(1)
    let guest = LinkID(2)
    var now = noon

    init() {
        client = .generate(&random)
        key = makeKey(&random)
        user = makeKey(&random)
        let (client, key) = (client, key)
        step { core, turn in core.addUnused(client, key: key, &turn) }
        step { core, turn in core.makeContact(client, &turn) }
        step { core, turn in
            core.withContact(&turn) { contact, turn in
                var terms = RelayTerms.serving
                terms.isOpen = true
                return contact.serve(terms, turn)
            }
        }
    }

    var reservation: ReservationID { reservation(of: user) }

    static let label = RelayLabel(unchecked: [UInt8](repeating: 5, count: 16))

    func reservation(of user: IdentityKey) -> ReservationID {
        RelaySecret(rendezvous: key.publicKey, user: user.publicKey, own: user).reservation(Self.label)
    }

    @discardableResult mutating func step(_ body: (inout NodeStateMachine, inout Turn) -> Void) -> [NodeAction] {
        var turn = turn(random, now: now)
        body(&node, &turn)
        random = turn.random
        return turn.actions
    }

    mutating func open(_ link: LinkID, by remote: PublicKey) {
        let client = client
        step { core, turn in core.linkOpened(link, client: client, remote: remote, weDialled: false, &turn) }
    }

    @discardableResult mutating func say(_ frame: Frame, on link: LinkID) -> [NodeAction] {
        step { core, turn in core.receive(frame, on: link, verify: { _ in nil }, &turn) }
    }

    /// The number of the first frame after which the link is left unread.
    mutating func firstPause(in count: Int, on link: LinkID, staysOpen: Bool = false, _ frame: (Int) -> Frame) -> Int? {
        (1...count).first { number in
            let actions = say(frame(number), on: link)
            #expect(!staysOpen || !actions.contains(.close(link)))
            return actions.pauses[link] != nil
        }
    }

    /// How many frames pass in `time` on links that are read as soon as they may be.
    mutating func count(in time: Milliseconds, on links: [LinkID], _ frame: Frame) -> Int {
        var readAt: [LinkID: Timestamp] = [:]
        let start = now
        var count = 0
        for passed in 0..<time {
            now = start + passed
            for link in links {
                while readAt[link, default: start] <= now {
                    count += 1
                    if let wait = say(frame, on: link).pauses[link] { readAt[link] = now + wait }
                }
            }
        }
        return count
    }

    /// Another user of this rendezvous node with a stream, and the links of both ends.
    mutating func openStream(_ holder: LinkID, _ guest: LinkID, of user: IdentityKey) {
        open(holder, by: user.publicKey)
        say(.relayRequest(.reserve([Self.label])), on: holder)
        open(guest, by: makeKey(&random).publicKey)
        let id = reservation(of: user)
        let told = say(.relayRequest(.open(id)), on: guest)
        #expect(told == [.forward(holder, .relayAnswer(.incoming(RelayStreamID(1), id)))])
    }

    mutating func openStream() { openStream(holder, guest, of: user) }

    /// Further guests of the first user, each with a stream.
    mutating func openStreams(_ links: [LinkID]) {
        for link in links {
            open(link, by: makeKey(&random).publicKey)
            say(.relayRequest(.open(reservation)), on: link)
        }
    }
}

/// The limit on frames without effect (Links.md): above it a link is left unread for a while.
@Suite("Frames that change nothing") struct IdleFrameTests {
    private let victim = 1
    private let attacker = 2
    /// The number of frames, sent at one time, that exceeds the limit.
    private static let tooMany = Limits.idleFrameGroup * (Limits.idleFrameRate.burst + 1)
    private static let strangersTooMany = Limits.idleFrameGroup * (Limits.idleFrameStrangerRate.burst + 1)

    private func scene() throws -> (all: World, known: Content) {
        var all = try World.joined(3)
        all.run()
        all.command(0) { try $0.explode(at: $1.now + .day, &$1) }
        all.run()
        let known = all.text("known", by: attacker)
        let hasCome = all.inject(.content(known, age: 0), from: attacker, to: victim)
        #expect(hasCome)
        #expect(all.archive[victim][known.id] != nil && all.pauses.isEmpty)
        return (all, known)
    }

    // MARK: Members

    @Test(arguments: Idle.allCases)
    private func `a member that sends too many frames without effect is left unread for a while`(_ kind: Idle) throws {
        var (all, known) = try scene()
        let most = kind.firstOnes + Self.tooMany
        var first: Int?
        for number in 1...most where first == nil {
            let frame = try kind.frame(number, &all, known: known)
            let hasCome = all.inject(frame, from: attacker, to: victim)
            #expect(hasCome, "\(kind) has ended the link")
            if all.pauses[victim] != nil { first = number }
        }
        let pausedAt = try #require(first, "\(kind): \(most) at once and no pause")
        // The members' first exchange may have used up a frame or two.
        #expect(pausedAt > Self.tooMany - Limits.idleFrameGroup, "\(kind): a burst is let through")
        #expect(!all.isShunned(attacker, by: victim))
    }

    @Test func `a member's limit covers all frame kinds and is not reset by a new link`() throws {
        var (all, known) = try scene()
        for number in 1...Self.tooMany - Limits.idleFrameGroup {
            let kind = Idle.allCases[number % 2 == 0 ? 0 : 1]
            all.inject(try kind.frame(number, &all, known: known), from: attacker, to: victim)
        }
        #expect(all.pauses[victim] == nil)
        let key = all.keys[attacker].publicKey
        let client = all.clients[victim]
        let old = try #require(all.machine(victim)?.link(to: key))
        let new = LinkID(9_999)
        all.step(victim) { core, turn in core.linkClosed(old, &turn) }
        all.step(victim) { core, turn in core.linkOpened(new, client: client, remote: key, weDialled: false, &turn) }
        #expect(all.machine(victim)?.link(to: key) == new)
        for _ in 0..<Limits.idleFrameGroup { all.inject(.ping(1), from: attacker, to: victim) }
        #expect(all.pauses[victim] == 1)
    }

    @Test func `useful frames in between do not reset the count of idle frames`() throws {
        var (all, _) = try scene()
        for number in 1...Self.tooMany {
            all.inject(.ping(UInt64(number)), from: attacker, to: victim)
            all.inject(.content(all.text("\(number)", by: attacker), age: 0), from: attacker, to: victim)
        }
        #expect(all.pauses[victim] == 1)
        #expect(all.archive[victim].count > Self.tooMany, "what changes something is free")
    }

    @Test func `frames in flight from a member shunned for forgeries count towards the limit`() throws {
        var (all, _) = try scene()
        let key = all.keys[attacker].publicKey
        let link = try #require(all.machine(victim)?.link(to: key))
        var state = try #require(all.machine(0)?.record.group)
        state.version += 1
        let forged = state.signed(by: all.keys[attacker], &all.random)
        let update = GroupUpdate(state: forged, members: [], departures: [])
        var frames: [Frame] = Array(repeating: .group(update), count: Limits.forgeryRate.burst + 1)
        frames += Array(repeating: .ping(1), count: Self.tooMany + 1)
        // The close takes effect later: a peer may go on sending for some seconds.
        let core = all.nodes[victim]
        var turn = turn(all.random, now: all.now)
        let answers = frames.map { frame in turn.apart { core.receive(frame, on: link, verify: { _ in nil }, &$0) } }
        #expect(core.conversation(all.clients[victim])?.isShunned(key, now: all.now) == true)
        #expect(answers.contains { $0.contains(.close(link)) } && answers.last?.pauses.keys.first == link)
    }

    @Test func `a busy and honest conversation is never paused`() throws {
        var all = try World.joined(3)
        all.run()
        for round in 0..<400 {
            _ = try all.say("round \(round)", from: round % 3)
            all.run(for: 5)
        }
        // After an absence all unacknowledged messages come again.
        all.isolate(2)
        for round in 0..<200 { _ = try all.say("away \(round)", from: 0) }
        all.heal(for: 90_000)
        #expect(all.archive[2].count >= 600 && all.pauses.isEmpty, "\(all.pauses)")
    }

    // MARK: The measure

    @Test func `idle frames pass at the burst and rate of members, relayed pieces and strangers`() {
        let kinds = [(IdleFrames.member, 256, 4_000), (.relayed, 256, 2_000), (.stranger, 8, 571)]
        for (frames, burst, rate) in kinds {
            var frames = frames
            var passed = 0
            var now = noon
            var pauses = 0
            while now < noon + 2 * .second {
                if let wait = frames.note(now: now) {
                    now = now + wait
                    pauses += 1
                }
                passed += 1
                #expect(pauses > 0 || passed < burst + Limits.idleFrameGroup)
            }
            // A tolerance of one pause.
            #expect(
                abs(passed - burst - 2 * rate) <= 2 * Limits.idleFrameGroup, "\(passed) of \(burst) and 2 · \(rate)")
        }
    }

    @Test func `a frame of many elements waits as long as single frames`() {
        for elements in [1, 3, 4, 7, 256, 1_024] {
            var (together, apart) = (IdleFrames.member, IdleFrames.member)
            var now = noon
            for round in 0..<200 {
                let whole = together.note(elements: elements, now: now)
                let last = (0..<elements).compactMap { _ in apart.note(now: now) }.last
                #expect(whole == last, "\(elements), round \(round)")
                now = now + Milliseconds(round % 3)
            }
        }
    }

    @Test(arguments: ["receipt", "acknowledgement", "contents"])
    func `ids that change nothing cost as much in one frame as in single frames`(_ kind: String) throws {
        let burst = Limits.idleFrameGroup * Limits.idleFrameRate.burst
        let most = ["receipt": Limits.receiptCount, "contents": Limits.contentsCount][kind] ?? 1_024
        for size in [1, kind == "contents" ? 16 : 64, most] {
            var (all, _) = try scene()
            var named = 0
            while all.pauses[victim] == nil, named <= 4 * max(burst, most) {
                let unknown = (0..<size).map { _ in MessageID.random(&all.random) }
                let frame: Frame =
                    switch kind {
                    case "receipt": .receipt(Receipt(.read, unknown))
                    case "acknowledgement": .acknowledgement(Acknowledgement(held: unknown))
                    default: .contents(unknown.map { AgedContent(all.text("x", id: $0, by: attacker), age: 0) })
                    }
                all.inject(frame, from: attacker, to: victim)
                named += size
            }
            #expect(named > burst - 8 && named <= burst + max(size, Limits.idleFrameGroup), "\(size) an id: \(named)")
        }
    }

    @Test func `a receipt's unknown ids count even beside an id that is news`() throws {
        var (all, _) = try scene()
        let ids = try (0..<8).map { try all.say("\($0)", from: victim) }
        all.run()
        for id in ids {
            let unknown = (0..<64).map { _ in MessageID.random(&all.random) }
            all.inject(.receipt(Receipt(.read, [id] + unknown)), from: attacker, to: victim)
        }
        #expect(all.pauses[victim] != nil)
        #expect(all.machine(victim)?.isShunned(all.keys[attacker].publicKey, now: all.now) == false)
    }

    /// Frames with as many elements as each may have.
    @Test func `every frame with a list counts its elements`() throws {
        var random = Randomness.seeded(3)
        let key = makeKey(&random)
        let ids: [MessageID] = (0..<200).map(numbered)
        let labels: [RelayLabel] = (0..<200).map(numbered)
        let boxes: [BoxLabel] = (0..<100).map(numbered)
        let slots: [SlotID] = (0..<200).map(numbered)
        let tags: [SlotTag] = (0..<32).map(numbered)
        let box: BoxID = numbered(1)
        let endpoints = (1...8).map { Endpoint(host: "10.0.0.\($0)", port: 7_600) }
        let member = Member(profile: nil, endpoints: endpoints, version: 1, key: key, &random)
        let nonce = try #require(PunchNonce(random.bytes(16)))
        let frames: [(Frame, Int)] = [
            (.receipt(Receipt(.read, ids)), 200), (.acknowledgement(Acknowledgement(stored: ids, expired: ids)), 400),
            (.profile(member), 8), (.group(GroupUpdate(state: nil, members: [member, member], departures: [])), 2),
            (.punch(PunchMessage(step: .offer, nonce: nonce, candidates: endpoints)), 8),
            (.relayRequest(.reserve(labels)), 200), (.relayRequest(.withdraw(labels)), 200),
            (.mailboxRequest(.claim(owner: key.publicKey, proof: [], boxes)), 100),
            (.mailboxRequest(.drop(boxes)), 100), (.mailboxRequest(.purge(box, slots)), 200),
            (.mailboxRequest(.take(box, tags)), 32), (.mailboxRequest(.discard(box, tags, answer: [])), 32),
            (.mailboxAnswer(.slots(box, slots)), 200), (.mailboxAnswer(.discarded(box, slots)), 200),
            (.receipt(Receipt(.read, [])), 1), (.ping(1), 1),
        ]
        for (frame, count) in frames { #expect(frame.elementCount == count, "\(frame)") }
    }

    @Test func `links that share a rate take turns, and are no faster together`() {
        for count in [1, 2, 32, 1_024] {
            var frames = IdleFrames.relayed
            var readAt = [Timestamp](repeating: noon, count: count)
            var passed = [Int](repeating: 0, count: count)
            for time in 0..<10_000 {
                let now = noon + Milliseconds(time)
                for link in 0..<count {
                    while readAt[link] <= now {
                        passed[link] += 1
                        if let wait = frames.note(now: now) { readAt[link] = now + wait }
                    }
                }
            }
            let burst = Limits.idleFrameGroup * Limits.idleFrameRate.burst
            let sum = passed.reduce(0, +)
            // Each link may have taken a group in advance.
            #expect(abs(sum - burst - 20_000) <= (count + 1) * Limits.idleFrameGroup, "\(count): \(sum)")
            // Except for the burst, which the first link may take.
            #expect(passed.dropFirst().allSatisfy { $0 >= 15_000 / count }, "\(passed)")
        }
    }

    @Test func `a clock that is set back causes no wait beyond the maximum`() {
        var frames = IdleFrames.member
        for _ in 0..<100_000 { _ = frames.note(now: noon) }
        let most = Milliseconds(Limits.idleFrameDebt) * Limits.idleFrameRate.interval
        let waits = (0..<8).compactMap { _ in frames.note(now: noon - 3_650 * .day) }
        #expect(waits == [most, most])
        for _ in 0..<Limits.idleFrameGroup {
            let wait = frames.note(now: noon - 3_650 * .day + .minute)
            #expect(wait == nil)
        }
    }

    @Test func `a sender that keeps to the rate is never paused`() {
        var frames = IdleFrames.member
        let pauses = (0..<40_000).compactMap { frames.note(now: noon + Milliseconds($0 / Limits.idleFrameGroup)) }
        #expect(pauses.isEmpty)
    }

    // MARK: Others than members

    @Test func `a stranger's relay labels count when the node does not serve them`() {
        var contact = RendezvousNode()
        contact.open(contact.guest, by: makeKey(&contact.random).publicKey)
        contact.step { core, turn in core.withContact(&turn) { $0.serve(RelayTerms(), $1) } }
        let labels = [RelayLabel](repeating: RendezvousNode.label, count: Limits.relayLabelCount)
        let told = contact.say(.relayRequest(.reserve(labels)), on: contact.guest)
        let groups = Limits.relayLabelCount / Limits.idleFrameGroup - Limits.idleFrameStrangerRate.burst
        #expect(told.pauses == [contact.guest: Milliseconds(groups) * Limits.idleFrameStrangerRate.interval])
    }

    @Test(arguments: ["ping", "pong", "invitation", "reserve", "release", "open", "stream", "wrong"])
    func `a stranger at the contact inbox is paused after a few frames of any kind`(_ kind: String) {
        var contact = RendezvousNode()
        contact.open(contact.holder, by: contact.user.publicKey)
        let id = MessageID.random(&contact.random)
        let nobody = contact.reservation(of: contact.key)
        let first = contact.firstPause(in: Self.strangersTooMany + 1, on: contact.holder) { number in
            switch kind {
            case "ping": .ping(UInt64(number))
            case "pong": .pong(UInt64(number))
            case "invitation": .invitation(Invitation(id: id, slug: "mayfly:join/x", name: nil))
            case "reserve": .relayRequest(.reserve([]))
            case "release": .relayRequest(.release)
            case "open": .relayRequest(.open(nobody))
            case "stream": .relayRequest(.stream(RelayStreamID(7), .data([1])))
            default: .joinCancelled
            }
        }
        // An invitation is new once. A reservation is an answer from the first time on.
        #expect(first == (kind == "invitation" ? Self.strangersTooMany + 1 : Self.strangersTooMany), "\(kind)")
    }

    @Test func `a guest of a conversation that only sends pings is left unread`() throws {
        var all = try World.joined(2)
        all.run()
        let (link, client, stranger) = (LinkID(9_999), all.clients[0], makeKey(&all.random).publicKey)
        all.step(0) { core, turn in core.linkOpened(link, client: client, remote: stranger, weDialled: false, &turn) }
        for number in 1...Self.strangersTooMany {
            #expect(all.pauses[0] == nil, "\(number)")
            all.step(0) { core, turn in core.receive(.ping(1), on: link, verify: { _ in nil }, &turn) }
        }
        #expect(all.pauses[0] == 1)
    }

    @Test func `strangers together send no faster than one member, over any number of links`() {
        var contact = RendezvousNode()
        let links = (100..<356).map { LinkID($0) }
        for link in links { contact.open(link, by: makeKey(&contact.random).publicKey) }
        let heard = contact.count(in: 1_000, on: links, .ping(1))
        let most = Limits.idleFrameGroup * (Limits.idleFrameRate.burst + 1_000 + links.count)
        #expect(heard <= most && heard >= 4_000, "\(heard) of \(most)")
    }

    // MARK: Streams through a rendezvous node

    @Test(arguments: ["data", "credit", "dead"]) func `small pieces of a relayed stream count on their sender's link`(
        _ kind: String
    ) {
        var contact = RendezvousNode()
        contact.openStream()
        let full = [UInt8](repeating: 7, count: Limits.relayPieceByteCount)
        if kind == "credit" { contact.say(.relayRequest(.stream(.guest, .data(full))), on: contact.guest) }
        let stream = RelayStreamID(kind == "dead" ? 5 : 1)
        let link = kind == "data" ? contact.guest : contact.holder
        let first = contact.firstPause(in: Self.tooMany, on: link, staysOpen: true) { number in
            switch kind {
            case "data": .relayRequest(.stream(.guest, .data([UInt8(truncatingIfNeeded: number)])))
            case "credit": .relayRequest(.stream(stream, .credit(1)))
            // Long frames to an unknown stream are dropped, and cost as much.
            default: .relayRequest(.stream(stream, .data(full)))
            }
        }
        #expect(first == Self.tooMany, "\(kind)")
    }

    @Test func `guests of one served node share a limit on small pieces, apart from other nodes' guests`() {
        var contact = RendezvousNode()
        contact.openStream()
        let others = (10..<14).map { LinkID($0) }
        contact.openStreams(others)
        let (holder, guest, stranger) = (LinkID(20), LinkID(21), makeKey(&contact.random))
        contact.openStream(holder, guest, of: stranger)
        let piece = Frame.relayRequest(.stream(.guest, .data([1])))
        for number in 1..<Self.tooMany {
            let link = others[number % others.count]
            let actions = contact.say(piece, on: link)
            #expect(actions.pauses.isEmpty, "\(number)")
        }
        let last = contact.say(piece, on: contact.guest)
        #expect(last.pauses == [contact.guest: Limits.relayedFrameInterval])
        let other = contact.say(piece, on: guest)
        #expect(other == [.forward(holder, .relayAnswer(.stream(RelayStreamID(1), .data([1]))))])
    }

    @Test func `all relayed streams together are limited to the rate of four served nodes`() {
        var contact = RendezvousNode()
        let links = (100..<116).map { LinkID($0) }
        for link in links { contact.openStream(LinkID(link.value + 100), link, of: makeKey(&contact.random)) }
        // Without credit a stream passes on one window, here a byte at a time.
        let passed = contact.count(in: 2_000, on: links, .relayRequest(.stream(.guest, .data([1]))))
        let group = Limits.relayedFrameTotalGroup
        let most = group * (Limits.idleFrameRate.burst + 2_000 + links.count)
        #expect(passed <= most && passed >= group * 2_000, "\(passed) of \(most)")
    }

    @Test func `credit in pieces of a kilobyte does not count as small pieces`() {
        var contact = RendezvousNode()
        contact.openStream()
        let full = [UInt8](repeating: 7, count: Limits.relayPieceByteCount)
        let guests = [contact.guest] + (10..<17).map { LinkID($0) }
        contact.openStreams(Array(guests.dropFirst()))
        for link in guests { for _ in 0..<4 { contact.say(.relayRequest(.stream(.guest, .data(full))), on: link) } }
        // Credit for the passed bytes in pieces of a kilobyte: more frames than the limit, each with an effect.
        var count = 0
        for number in guests.indices {
            for _ in 0..<64 {
                let credit = RelayRequest.stream(RelayStreamID(UInt32(number + 1)), .credit(1_024))
                let actions = contact.say(.relayRequest(credit), on: contact.holder)
                #expect(actions.pauses.isEmpty && !actions.contains(.close(contact.holder)), "\(count)")
                count += 1
            }
        }
        #expect(count > Self.tooMany)
    }

    @Test func `frames on a link whose inbox is gone count towards the limit`() {
        var contact = RendezvousNode()
        let first = contact.firstPause(in: Self.tooMany, on: LinkID(99)) { .ping(UInt64($0)) }
        #expect(first == Self.tooMany)
    }

    @Test func `a stream at its full rate is paused at neither end`() {
        var contact = RendezvousNode()
        contact.openStream()
        let piece = [UInt8](repeating: 7, count: Limits.smallPieceByteCount)
        var (credit, unread, passed) = (Limits.relayWindow, 0, 0)
        for _ in 0..<200 {
            var told: [NodeAction] = []
            while credit >= piece.count {
                told += contact.say(.relayRequest(.stream(.guest, .data(piece))), on: contact.guest)
                credit -= piece.count
                unread += piece.count
                passed += piece.count
            }
            while unread >= Limits.relayWindow / 4 {
                let read = RelayRequest.stream(RelayStreamID(1), .credit(Limits.relayWindow / 4))
                told += contact.say(.relayRequest(read), on: contact.holder)
                unread -= Limits.relayWindow / 4
            }
            contact.now = contact.now + 25
            told += contact.step { core, turn in core.advance(&turn) }
            for action in told {
                if case .pauseReading = action { Issue.record("paused after \(passed) bytes") }
                if case .forward(contact.guest, .relayAnswer(.stream(_, .credit(let count)))) = action {
                    credit += count
                }
            }
        }
        #expect(passed > 4 * Limits.relayedByteRate, "\(passed)")
    }

    @Test func `small pieces from our rendezvous node count, and long ones do not`() throws {
        var contact = RendezvousNode()
        let rendezvous = makeKey(&contact.random)
        let card = ContactCard(
            key: rendezvous.publicKey, routingSecret: [UInt8](repeating: 1, count: 32), endpoints: [])
        let (client, link) = (contact.client, LinkID(30))
        contact.step { core, turn in core.withContact(&turn) { $0.use(rendezvous: [card], $1) } }
        contact.step { core, turn in
            core.linkOpened(link, client: client, remote: rendezvous.publicKey, weDialled: true, &turn)
        }
        let id = ReservationID(unchecked: [UInt8](repeating: 1, count: 16))
        let grant = RelayGrant(reservationCount: 9, streamsPerReservation: 32, streamCount: 32, byteRate: 1 << 20)
        contact.say(.relayAnswer(.reserved(grant)), on: link)
        let long = RelayAnswer.stream(RelayStreamID(1), .data([UInt8](repeating: 0, count: 1_024)))
        for _ in 0..<2 * Self.tooMany {
            let actions = contact.say(.relayAnswer(long), on: link)
            #expect(actions == [.relayed(link, long)])
        }
        for number in 1...Self.tooMany {
            let word: RelayAnswer =
                number % 2 == 0 ? .incoming(RelayStreamID(UInt32(number)), id) : .stream(RelayStreamID(1), .data([1]))
            let expected: [NodeAction] =
                [.relayed(link, word)]
                + (number == Self.tooMany ? [.pauseReading(link, Limits.idleFrameRate.interval)] : [])
            let actions = contact.say(.relayAnswer(word), on: link)
            #expect(actions == expected)
        }
    }
}

extension [NodeAction] {
    fileprivate var pauses: [LinkID: Milliseconds] {
        reduce(into: [:]) { if case .pauseReading(let link, let time) = $1 { $0[link] = time } }
    }
}
