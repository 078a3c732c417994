import Cryptography
import TestSupport
import Testing

@testable import Messaging

@Suite("Relay: the link gives way to a direct one") struct LinkUpgradeTests {
    private let keys: [PublicKey]
    private let relayed = LinkID(1)
    private let direct = LinkID(2)

    init() {
        var random = Randomness.seeded(3)
        keys = [makeKey(&random).publicKey, makeKey(&random).publicKey].sorted()
    }

    private func up(_ side: Int = 0) -> LinkStateMachine {
        var machine = LinkStateMachine(own: keys[side], remote: keys[1 - side], isDialable: true, now: noon)
        #expect(machine.opened(relayed, dialer: keys[side], isRelayed: true, now: noon) == [.use(relayed)])
        return machine
    }

    @Test func `a direct path is tried soon, then with growing waits, and the link stays`() {
        var random = Randomness.seeded(1)
        var machine = up()
        var now = noon
        var waits: [Milliseconds] = []
        for _ in 0..<12 {
            var due = machine.nextDeadline ?? .latest
            // A silent link is probed meanwhile; the other side answers.
            while !machine.advance(now: due).contains(.upgrade) {
                machine.heard(relayed, now: due)
                due = machine.nextDeadline ?? .latest
            }
            waits.append(due - now)
            now = due + .second
            #expect(machine.link == relayed)
            machine.dialFailed(now: now, random: &random)
            machine.heard(relayed, now: now)
            #expect(machine.link == relayed, "a failed upgrade drops nothing")
        }
        #expect(waits[0] == Limits.upgrade.first)
        #expect(zip(waits, waits.dropFirst()).allSatisfy { $0 - 5 * .second <= $1 || $1 >= Limits.upgrade.longest })
        #expect(
            waits.allSatisfy { $0 <= Limits.upgrade.longest * 5 / 4 + .second } && waits[11] >= Limits.upgrade.longest)
        // A move triggers a dial at once, but no second one while a dial is under way.
        machine.seekDirect(now: now)
        #expect(machine.advance(now: now) == [.upgrade])
        machine.seekDirect(now: now)
        #expect(machine.advance(now: now).isEmpty)
    }

    @Test func `a direct link replaces a relayed one at any time, whichever side dialled`() {
        for dialer in keys {
            for age in [0, Limits.simultaneousDialWindow, .hour] {
                var machine = up()
                let actions = machine.opened(direct, dialer: dialer, now: noon + age)
                #expect(actions == [.use(direct), .retire(relayed)])
                // It is direct, so no upgrade is due.
                #expect(machine.nextDeadline == noon + age + Limits.keepaliveInterval)
                let wasInUse = machine.closed(relayed, now: noon + age)
                #expect(!wasInUse && machine.link == direct)
            }
        }
    }

    @Test func `a relayed link dialled at the same time gives way; a later one replaces a lost direct link`() {
        for dialer in keys {
            var machine = LinkStateMachine(own: keys[0], remote: keys[1], isDialable: true, now: noon)
            #expect(machine.opened(direct, dialer: keys[1], now: noon) == [.use(direct)])
            var later = machine
            #expect(machine.opened(relayed, dialer: dialer, isRelayed: true, now: noon + 1) == [.retire(relayed)])
            let time = noon + Limits.simultaneousDialWindow
            let actions = later.opened(relayed, dialer: dialer, isRelayed: true, now: time)
            #expect(actions == [.use(relayed), .retire(direct)])
        }
    }

    @Test func `both sides keep the same one of any two links, in any order`() {
        for dialers in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            for kinds in [[true, false], [true, true], [false, false]] {
                let links = [LinkID(1), LinkID(2)]
                var kept: Set<LinkID?> = []
                for side in 0..<2 {
                    for order in [[0, 1], [1, 0]] {
                        // The same dialer's later link replaces its earlier one: the dialer sets that order.
                        if dialers[0] == dialers[1], kinds[0] == kinds[1], order == [1, 0] { continue }
                        var machine = LinkStateMachine(
                            own: keys[side], remote: keys[1 - side], isDialable: true, now: noon)
                        for index in order {
                            _ = machine.opened(
                                links[index], dialer: keys[dialers[index]], isRelayed: kinds[index], now: noon)
                        }
                        kept.insert(machine.link)
                    }
                }
                #expect(kept.count == 1, "dialled by \(dialers), relayed \(kinds)")
                // The smaller key's link stays, if both links are of one kind.
                if dialers[0] < dialers[1], kinds[0] == kinds[1] { #expect(kept == [links[0]]) }
            }
        }
    }

    @Test func `a member heard on this network is dialled there when only a relay reaches it, one dial at a time`() {
        var random = Randomness.seeded(1)
        var machine = up()
        #expect(machine.isMissed(now: noon) && machine.found(now: noon) == [.dial])
        #expect(machine.found(now: noon).isEmpty && machine.link == relayed)
        machine.dialFailed(now: noon, random: &random)
        #expect(machine.link == relayed && machine.found(now: noon) == [.dial])
        #expect(machine.opened(direct, dialer: keys[0], now: noon) == [.use(direct), .retire(relayed)])
        #expect(!machine.isMissed(now: noon) && machine.found(now: noon).isEmpty)
    }

    @Test func `a lost or resting link looks for no direct path`() {
        var random = Randomness.seeded(1)
        var lost = up()
        let wasInUse = lost.closed(relayed, now: noon)
        #expect(wasInUse)
        lost.seekDirect(now: noon)
        #expect(lost.advance(now: noon + .hour) == [.dial])
        lost.dialFailed(now: noon + .hour, random: &random)
        #expect(lost.link == nil)
        var resting = up()
        resting.rest()
        #expect(resting.nextDeadline == nil)
        var deaf = LinkStateMachine(own: keys[0], remote: keys[1], isDialable: false, now: noon)
        _ = deaf.opened(relayed, dialer: keys[1], isRelayed: true, now: noon)
        #expect(deaf.advance(now: noon + Limits.upgrade.first).isEmpty, "nobody knows where")
        deaf.hurry(now: noon + Limits.upgrade.first)
        #expect(deaf.advance(now: noon + Limits.upgrade.first) == [.upgrade], "now somebody does")
    }
}

@Suite("Relay: the contact inbox as a user of rendezvous nodes") struct RelayContactTests {
    private var random = Randomness.seeded(5)
    private let rendezvous: IdentityKey
    private let card: ContactCard
    private var contact: ContactStateMachine
    private let link = LinkID(1)

    init() {
        rendezvous = makeKey(&random)
        card = ContactCard(
            key: rendezvous.publicKey, routingSecret: random.bytes(32),
            endpoints: [Endpoint(host: "192.0.2.1", port: 7_440), Endpoint(host: "2001:db8::1", port: 7_440)])
        contact = ContactStateMachine(
            client: .generate(&random), key: makeKey(&random), record: ContactRecord(routingSecret: random.bytes(32)),
            now: noon)
    }

    private let grant = RelayGrant(reservationCount: 3, streamsPerReservation: 4, streamCount: 4, byteRate: 1_000)

    private func reservation(_ seed: RelaySeed) -> ReservationID {
        RelaySecret(rendezvous: card.key, user: contact.key.publicKey, own: contact.key).reservation(
            seed.label(at: card.key))
    }

    private var cardLabel: RelayLabel { contact.cardSeed.label(at: card.key) }

    private mutating func reserve() {
        var now = turn(random)
        #expect(contact.use(rendezvous: [card], now).isEmpty)
        let dials = contact.advance(&now)
        let isDialled = if case .dial(_, let dial)? = dials.first { dial.endpoints == card.endpoints } else { false }
        #expect(isDialled, "\(dials)")
        #expect(
            contact.linkOpened(link, to: card.key, weDialled: true, now) == [
                .forward(link, .relayRequest(.reserve([cardLabel])))
            ])
        // The granted place is saved for the next start.
        #expect(
            contact.receive(.relayAnswer(.reserved(grant)), from: card.key, on: link, now) == [
                .save(contact.client), .endpointsMayHaveChanged,
            ])
        #expect(contact.record.granted == [ContactRecord.Granted(rendezvous: card.key, grant: grant)])
    }

    @Test mutating func `labels differ by inbox, generation and rendezvous node, and a card's from a conversation's`() {
        let key = makeKey(&random)
        let seeds = (0..<3).map { RelaySeed(key: key, generation: $0) } + [RelaySeed(card: key), contact.cardSeed]
        let nodes = [card.key, makeKey(&random).publicKey]
        let labels = seeds.flatMap { seed in nodes.map { seed.label(at: $0) } }
        #expect(Set(labels).count == 10 && Set(seeds).count == 5)
        #expect(seeds[0] == RelaySeed(key: key, generation: 0))
    }

    @Test mutating func `each inbox has its own endpoints, and a stream names its inbox`() {
        reserve()
        let seeds = (0..<3).map { RelaySeed(key: rendezvous, generation: $0) }
        let labels = seeds.map { $0.label(at: card.key) }
        #expect(contact.want(Array(seeds[0..<2])) == [.forward(link, .relayRequest(.reserve(Array(labels[0..<2]))))])
        let places = contact.relayPlaces
        let endpoints = ([contact.cardSeed] + seeds[0..<2]).map { places.endpoints(of: $0) }
        #expect(Set(endpoints.flatMap { $0.compactMap(\.relay?.reservation) }).count == 3)
        #expect(endpoints.allSatisfy { $0.map(\.host) == ["192.0.2.1", "2001:db8::1"] })
        // The limit is reached: a fourth inbox has no place, until another goes and all members are told.
        _ = contact.want(seeds)
        #expect(places.endpoints(of: seeds[2]).isEmpty && contact.relayPlaces.endpoints(of: seeds[2]).isEmpty)
        #expect(seeds.map { contact.seed(of: reservation($0), at: card.key) } == [seeds[0], seeds[1], nil])
        let moved: [NodeAction] = [
            .forward(link, .relayRequest(.withdraw([labels[1]]))), .forward(link, .relayRequest(.reserve([labels[2]]))),
            .endpointsMayHaveChanged,
        ]
        #expect(contact.want([seeds[0], seeds[2]]) == moved)
        #expect(seeds.map { contact.seed(of: reservation($0), at: card.key) } == [seeds[0], nil, seeds[2]])
        #expect(contact.relayPlaces.endpoints(of: seeds[2]).count == 2)
    }

    @Test("after a start everything is advertised as before, even before the rendezvous node has answered")
    mutating func remembered() {
        reserve()
        let before = contact.relayPlaces.endpoints(of: contact.cardSeed)
        var again = ContactStateMachine(client: contact.client, key: contact.key, record: contact.record, now: noon)
        #expect(again.relayPlaces.isEmpty && again.use(rendezvous: [card], turn(random)).isEmpty)
        #expect(again.relayPlaces.endpoints(of: again.cardSeed) == before && before.count == 2)
        #expect(again.standing(at: card.key) == .unreachable)
        // A rendezvous node without an earlier grant has to answer first.
        var other = card
        other.key = makeKey(&random).publicKey
        _ = again.use(rendezvous: [other], turn(random))
        #expect(again.relayPlaces.isEmpty && again.record.granted.isEmpty)
    }

    private var relayed: [Endpoint] { contact.relayPlaces.endpoints(of: contact.cardSeed) }

    @Test("a reservation is advertised as endpoints of the rendezvous node, and withdrawn when it is given up")
    mutating func advertised() throws {
        #expect(relayed.isEmpty)
        reserve()
        let endpoints = relayed
        #expect(endpoints.map(\.host) == ["192.0.2.1", "2001:db8::1"])
        for endpoint in endpoints {
            #expect(endpoint.relay?.reservation == reservation(contact.cardSeed) && endpoint.relay?.key == card.key)
        }
        #expect(contact.standing(at: card.key) == .reserved(grant))
        let now = turn(random)
        #expect(contact.use(rendezvous: [card], now).isEmpty, "the same again")
        #expect(
            contact.use(rendezvous: [], now) == [
                .save(contact.client), .endpointsMayHaveChanged, .forward(link, .relayRequest(.release)), .close(link),
            ])
        #expect(relayed.isEmpty && contact.standing(at: card.key) == nil)
    }

    @Test("the link is kept, probed and redialled, and its reservations are advertised for ten minutes")
    mutating func kept() {
        reserve()
        var now = turn(random, now: noon + Limits.keepaliveInterval)
        guard case .transmit(link, .ping(let nonce))? = contact.advance(&now).first else {
            Issue.record("a silent rendezvous node is asked")
            return
        }
        #expect(contact.receive(.pong(nonce), from: card.key, on: link, now).isEmpty, "and the link stays")
        #expect(contact.linkClosed(link, to: card.key, now).isEmpty)
        #expect(contact.standing(at: card.key) == .unreachable && relayed.count == 2)
        now = turn(random, now: noon + Limits.keepaliveInterval + Limits.reservationGrace)
        let actions = contact.advance(&now)
        #expect(actions.contains(.endpointsMayHaveChanged) && relayed.isEmpty)
        #expect(actions.contains { if case .dial = $0 { true } else { false } })
    }

    @Test("after short links in a row the next dial waits, as when another copy of the home takes each link")
    mutating func shortLinks() {
        reserve()
        func dials(at time: Timestamp) -> Bool {
            var now = turn(random, now: time)
            return contact.advance(&now).contains { if case .dial = $0 { true } else { false } }
        }
        var open = link
        var now = noon
        for step in 1...6 {
            now = now + .second
            #expect(contact.linkClosed(open, to: card.key, turn(random, now: now)).isEmpty)
            now = now + .second
            let isSlow = step >= Limits.shortLinkCount
            #expect(dials(at: now) == !isSlow, "link \(step)")
            if isSlow {
                now = now + Limits.redialCopies
                #expect(dials(at: now))
            }
            open = LinkID(UInt64(100 + step))
            _ = contact.linkOpened(open, to: card.key, weDialled: true, turn(random, now: now))
            _ = contact.receive(.relayAnswer(.reserved(grant)), from: card.key, on: open, turn(random, now: now))
        }
        now = now + Limits.shortLink
        #expect(contact.linkClosed(open, to: card.key, turn(random, now: now)).isEmpty)
        #expect(dials(at: now + .second), "a link that lasted is dialled again at once")
    }

    @Test("streams of a rendezvous node without a reservation are dropped, and answers of another node end its link")
    mutating func strangers() {
        let stranger = makeKey(&random).publicKey
        let now = turn(random)
        let answers: [RelayAnswer] = [
            .reserved(grant), .refused(.full), .incoming(RelayStreamID(1), reservation(contact.cardSeed)),
            .stream(RelayStreamID(1), .end),
        ]
        for answer in answers {
            #expect(contact.receive(.relayAnswer(answer), from: stranger, on: LinkID(9), now) == [.close(LinkID(9))])
        }
        reserve()
        let incoming = RelayAnswer.incoming(RelayStreamID(1), reservation(contact.cardSeed))
        #expect(contact.receive(.relayAnswer(incoming), from: card.key, on: link, now) == [.relayed(link, incoming)])
        #expect(contact.receive(.relayAnswer(incoming), from: card.key, on: LinkID(9), now).isEmpty, "not this link")
        // It can neither have us advertised under another's reservation nor make our places flap.
        var other = grant
        other.reservationCount = 1
        #expect(contact.receive(.relayAnswer(.reserved(other)), from: card.key, on: link, now).isEmpty)
        #expect(relayed.first?.relay?.reservation == reservation(contact.cardSeed))
        #expect(contact.seed(of: .random(&random), at: card.key) == nil)
        #expect(
            contact.receive(.relayAnswer(.refused(.full)), from: card.key, on: link, now) == [
                .save(contact.client), .endpointsMayHaveChanged,
            ])
        #expect(contact.receive(.relayAnswer(.reserved(grant)), from: card.key, on: link, now).isEmpty)
        #expect(contact.receive(.relayAnswer(incoming), from: card.key, on: link, now).isEmpty)
    }

    @Test func `a guest of the contact inbox with a stream may stay, one without may not`() {
        var here = RendezvousNode()
        here.openStream()
        let (holder, guest, idle) = (here.holder, here.guest, LinkID(3))
        here.open(idle, by: makeKey(&here.random).publicKey)
        here.now = noon + Limits.guestStay
        let later = here.step { core, turn in core.advance(&turn) }
        let closed = here.step { core, turn in core.linkClosed(holder, &turn) }
        #expect(later == [.close(idle)] && closed.contains(.close(guest)))
        #expect(here.node.contact?.relay.isIdle == true)
    }

    private func serving() -> Turn {
        let turn = Turn(now: noon, random: random)
        turn.around.namedPeers = { _ in true }
        return turn
    }

    private mutating func serve(_ user: PublicKey, over link: LinkID, _ now: Turn) -> RelayGrant? {
        let answers = contact.receive(.relayRequest(.reserve([])), from: user, on: link, now)
        guard case .forward(link, .relayAnswer(.reserved(let grant)))? = answers.last else { return nil }
        return grant
    }

    @Test("a user that we serve is pinged, invited and used over its existing link, which stays afterwards")
    mutating func asked() {
        var now = serving()
        #expect(contact.serve(.serving, now).isEmpty)
        #expect(contact.linkOpened(link, to: card.key, weDialled: false, now).isEmpty)
        #expect(serve(card.key, over: link, now) != nil)
        let asked = contact.ping(card, nonce: 5, &now)
        #expect(asked == [.transmit(link, .ping(5))])
        #expect(contact.advance(&now).isEmpty, "nobody is dialled")
        #expect(contact.receive(.pong(5), from: card.key, on: link, now).isEmpty)
        #expect(contact.relay.serves(link) && !contact.isAwaited(card.key))
        #expect(contact.ping(card, nonce: 6, &now) == [.transmit(link, .ping(6))])
        #expect(contact.stopPing(card.key, nonce: 6).isEmpty && contact.relay.serves(link))
        #expect(contact.use(rendezvous: [card], now) == [.forward(link, .relayRequest(.reserve([cardLabel])))])
        #expect(contact.use(rendezvous: [], now) == [.forward(link, .relayRequest(.release))])
        #expect(contact.relay.serves(link) && !contact.isAwaited(card.key))
        #expect(contact.linkClosed(link, to: card.key, now).isEmpty)
        let dialled = contact.ping(card, nonce: 7, &now)
        #expect(dialled.contains { if case .dial = $0 { true } else { false } })
    }

    @Test mutating func `a late request on the replaced link does not move the reservation back`() throws {
        var now = serving()
        #expect(contact.serve(.serving, now).isEmpty)
        _ = contact.ping(card, nonce: 5, &now)
        let links = [LinkID(1), LinkID(2)]
        _ = contact.linkOpened(links[0], to: card.key, weDialled: false, now)
        let opened = contact.linkOpened(links[1], to: card.key, weDialled: true, now)
        let retired = try #require(links.first { opened.contains(.close($0)) })
        let kept = try #require(links.first { $0 != retired })
        #expect(serve(card.key, over: kept, now) != nil && serve(card.key, over: retired, now) == nil)
        #expect(contact.relay.serves(kept) && !contact.relay.serves(retired))
        #expect(contact.linkClosed(retired, to: card.key, now).isEmpty && contact.relay.serves(kept))
    }

    @Test("two nodes may be rendezvous nodes for each other over one link, and their streams are not confused")
    mutating func mutual() {
        let cards = [contact.key, rendezvous].map {
            ContactCard(key: $0.publicKey, routingSecret: card.routingSecret, endpoints: card.endpoints)
        }
        var nodes = [contact]
        nodes.append(
            ContactStateMachine(
                client: .generate(&random), key: rendezvous, record: ContactRecord(routingSecret: card.routingSecret),
                now: noon))
        func label(_ index: Int) -> RelayLabel { nodes[index].cardSeed.label(at: cards[1 - index].key) }
        let now = serving()
        for index in 0..<2 {
            #expect(nodes[index].serve(.serving, now).isEmpty)
            #expect(nodes[index].use(rendezvous: [cards[1 - index]], now).isEmpty)
            #expect(
                nodes[index].linkOpened(link, to: cards[1 - index].key, weDialled: index == 0, now) == [
                    .forward(link, .relayRequest(.reserve([label(index)])))
                ])
        }
        for index in 0..<2 {
            let request = RelayRequest.reserve([label(1 - index)])
            let answers = nodes[index].receive(.relayRequest(request), from: cards[1 - index].key, on: link, now)
            guard case .forward(_, let answer)? = answers.first else {
                Issue.record("\(answers)")
                return
            }
            let changed = nodes[1 - index].receive(answer, from: cards[index].key, on: link, now)
            #expect(changed == [.save(nodes[1 - index].client), .endpointsMayHaveChanged])
        }
        func reservation(_ index: Int) -> ReservationID? {
            nodes[index].relayPlaces.endpoints(of: nodes[index].cardSeed).first?.relay?.reservation
        }
        #expect(reservation(0) != nil && reservation(0) != reservation(1))
        // A stranger opens stream 1 to the second node at the first, and another to the first node at the second, also
        // stream 1.
        let guest = LinkID(7)
        let stranger = makeKey(&random).publicKey
        for index in 0..<2 {
            let wanted = reservation(1 - index) ?? .random(&random)
            let opened = nodes[index].receive(.relayRequest(.open(wanted)), from: stranger, on: guest, now)
            #expect(opened == [.forward(link, .relayAnswer(.incoming(RelayStreamID(1), wanted)))])
        }
        let piece = RelayStreamFrame.data([1])
        for index in 0..<2 {
            // Frames of the peer as our rendezvous node are for our end; those of it as our user are for the guest.
            let asUser = nodes[index].receive(
                .relayAnswer(.stream(RelayStreamID(1), piece)), from: cards[1 - index].key, on: link, now)
            #expect(asUser == [.relayed(link, .stream(RelayStreamID(1), piece))])
            let asNode = nodes[index].receive(
                .relayRequest(.stream(RelayStreamID(1), piece)), from: cards[1 - index].key, on: link, now)
            #expect(asNode == [.forward(guest, .relayAnswer(.stream(.guest, piece)))])
        }
    }

    @Test mutating func `relayed endpoints: text, bounds, and invalid ones`() {
        let relay = RelayAddress(key: card.key, routingSecret: card.routingSecret, reservation: .random(&random))
        func endpoint(_ host: String) -> Endpoint { Endpoint(host: host, port: 1, relay: relay) }
        for host in ["192.0.2.7", "2001:db8::7", "host.example"] {
            #expect(Endpoint(endpoint(host).description) == endpoint(host))
            #expect(endpoint(host).address == Endpoint(host: host, port: 1) && endpoint(host) != endpoint(host).address)
        }
        let whole = endpoint("h").description
        let long = endpoint(String(repeating: "h", count: 200)).description
        let wrong = ["\(whole)A", "\(whole)/", "relay://h:0/\(relay.text)", "relay://h:1/", "relay://h:1"]
        let cut = whole.indices.map { String(whole[..<$0]) }
        for text in cut + wrong + ["tcp://h:1/x", long] { #expect(Endpoint(text) == nil, "\(text)") }
        #expect(["later://x", "tcp://x:y", "x", "://x", whole].filter(Endpoint.isOfUnknownKind) == ["later://x"])
        let named = ContactCard(
            key: card.key, routingSecret: card.routingSecret, endpoints: [Endpoint(host: "h", port: 1), endpoint("h")])
        #expect((try? ContactCard(text: named.description)) == named)
        // A description keeps one endpoint of each kind.
        let direct = (0..<6).map { Endpoint(host: String(repeating: "a", count: 120) + "\($0)", port: 1) }
        let fitting = Member.fitting(direct + [endpoint("r"), endpoint("s")])
        #expect(fitting.count(where: { $0.relay != nil }) == 1 && fitting.count(where: { $0.relay == nil }) >= 4)
    }
}
