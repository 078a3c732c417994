import Adversary
import Cryptography
import Foundation
import Glibc
import Messaging
import Synchronization
import Testing

@Suite("Reservations", .script) struct ReservationTests {
    private static let nowhere = "tcp://127.0.0.1:9"
    private static let links = Mutex(0)

    /// `hub` serves `ann`. No node is reachable directly, except `hub`.
    private func withHub(
        _ names: String..., body: (_ hub: TestNode, _ ann: TestNode, _ others: [TestNode]) throws -> Void
    ) throws {
        try withNodes(["hub", "ann"] + names) { nodes in
            try nodes[0].initialise()
            try nodes[0].start(["--rendezvous"])
            for node in nodes.dropFirst() {
                try node.initialise(["--advertise", Self.nowhere])
                try node.start(Self.relayedOnly)
            }
            try introduce(nodes[0], nodes[1])
            try body(nodes[0], nodes[1], Array(nodes.dropFirst(2)))
            for node in nodes { try node.stop() }
        }
    }

    private static let relayedOnly = ["--no-udp"]

    private func count(_ hub: TestNode, _ name: String) throws -> Int64? {
        try hub.ok("status")["rendezvous"][name].integer
    }

    private func slug(_ node: TestNode, _ room: String) throws -> String { try node.invite(room) }

    private func join(_ node: TestNode, _ slug: String) throws {
        try node.ok("join", slug, "--as", node.name, "--timeout", "90")
    }

    private func openStream(_ hub: TestNode, _ reservation: ReservationID) throws -> HostileLink {
        let card = try ContactCard(text: try hub.card())
        // Each from its own network: handshakes per network are limited.
        let number = Self.links.withLock { links in
            links += 1
            return links
        }
        let link = try HostileLink(
            RawConnection(from: Source(number), to: NodeAddress(host: hub.host, port: hub.port)),
            token: SharedTokens(card: card, day: UInt32(time(nil) / 86_400))[number], identity: makeIdentity(),
            remote: card.key)
        try link.send(.relayRequest(.open(reservation)))
        return link
    }

    private func answer(_ link: HostileLink) throws -> RelayStreamFrame? {
        while let frame = try link.receive(seconds: 20) {
            if case .relayAnswer(.stream(_, let word)) = frame {
                if case .credit = word { continue }
                return word
            }
        }
        return nil
    }

    @Test("A removed member cannot open a stream any more, and the remaining members find each other after a restart")
    func removal() throws {
        try withHub("bob", "carl") { hub, ann, others in
            let (bob, carl) = (others[0], others[1])
            try ann.ok("conversation", "create", "--name", "room", "--as", "ann")
            let before = try slug(ann, "room")
            let known = try reservation(named: before)
            for node in others { try join(node, before) }
            try say("all three", ann)
            for node in others { try eventually("it is there") { try node.texts() == ["all three"] } }
            try ann.ok("conversation", "remove", "room", "carl")
            try carl.wait("removed", after: 0)
            try say("two of us", ann)
            // Once bob knows the new place the old one is gone, without the end of any stream.
            try eventually("the old place is given up") {
                try answer(try openStream(hub, known)) == .close(.unknownReservation)
            }
            try say("still here", bob)
            let now = try reservation(named: try slug(ann, "room"))
            #expect(now != known)
            try bob.restart(Self.relayedOnly)
            try say("back again", bob)
            #expect(try ann.texts().last == "back again")
            #expect(try ann.members().list.map { $0["path"].string } == ["relayed"])
        }
    }

    @Test func `All reservations return after a restart of either side, and wake no inbox`() throws {
        try withHub("bob") { hub, ann, others in
            let bob = others[0]
            for name in ["one", "two", "three"] {
                try ann.ok("conversation", "create", "--name", name)
                try join(bob, try slug(ann, name))
            }
            // Three conversations, the card, and the pooled inbox.
            try eventually("places") { try count(hub, "reservations") == 5 }
            for name in ["one", "two", "three"] { try ann.ok("inbox", "sleep", name) }
            try hub.restart(["--rendezvous"])
            try eventually("places again") { try count(hub, "reservations") == 5 }
            for isClean in [true, false] {
                if isClean { try ann.stop() } else { ann.crash() }
                try ann.start(Self.relayedOnly + ["--capacity", "1"])
                try eventually("places again") { try count(hub, "reservations") == 5 }
                // An inbox that has to tell its members another place is woken within eight seconds.
                let watched = try ann.run([
                    "watch", "--since", "0", "--until", "inboxAwake:wakeReason=activityRanking", "--timeout", "9",
                ])
                #expect(watched.code == 4, "\(watched)")
                #expect(try ann.ok("status")["inboxes"]["sleeping"].integer == 2)
            }
            for name in ["one", "two", "three"] {
                try bob.ok("send", name, "wake up", "--wait", "delivered", "--timeout", "90")
                // Unread messages keep their inbox awake.
                #expect(try ann.texts(name) == ["wake up"])
            }
        }
    }
}

/// The reservation through which an invite's holders reach its creator.
func reservation(named slug: String) throws -> ReservationID {
    try #require(try InviteSlug.decode(slug).invite.endpoints.compactMap(\.relay?.reservation).first)
}

func introduce(_ hub: TestNode, _ user: TestNode) throws {
    try hub.add(user)
    try user.add(hub)
    try user.ok("peer", "set", hub.name, "rendezvous=on")
    try eventually("a reservation") {
        try user.ok("status")["checks"].list.contains {
            $0["name"].string == "rendezvous" && $0["state"].string == "ok"
        }
    }
}
