import Cryptography
import Glibc
import Messaging
import Synchronization
import Transport

struct Strangers: Attackers {
    let target: Target
    let effort: Effort

    /// Seconds an attempt waits for the node to close; the node's own limits are longer.
    private static let patience = 1.0

    /// An unknown token, and an act 1 that would cost a curve operation.
    func badToken(_ number: Int, _ tally: inout Tally) throws {
        let connection = try RawConnection(from: Source(number), to: target.address)
        connection.write(HostileLink.preamble(randomBytes(16)) + [0, 2] + randomBytes(48))
        note(connection.readToEnd(seconds: 5), &tally)
    }

    /// An act 1 with a wrong tag, from eight networks.
    func noise(_ number: Int, _ tally: inout Tally) throws {
        let connection = try RawConnection(from: Source(number % 8), to: target.address)
        let token = SharedTokens.cached(target)[3].bytes
        connection.write(HostileLink.preamble(token) + [0, 2] + randomBytes(Act.one.byteCount - 2))
        note(connection.readToEnd(seconds: 5), &tally)
    }

    /// A whole handshake with the card's token.
    func handshake(_ number: Int, _ tally: inout Tally) throws {
        _ = try target.link(number, Self.identity)
        tally.count += 1
        tally.answered += 1
    }

    private static let identity = makeIdentity()

    func replay() -> Tally {
        let token = SharedTokens.cached(target)[3]
        guard let recorded = try? HostileLink.greeting(token, identity: Self.identity, remote: target.card.key).bytes
        else { return Tally() }
        return effort.attempts { number, tally in
            let connection = try RawConnection(from: Source(number), to: target.address)
            connection.write(recorded)
            // Act 2 needs the ephemeral key of act 1, so act 3 is a guess.
            guard connection.read(Act.two.byteCount) != nil else { return note(0, &tally) }
            tally.answered += 1
            connection.write([0] + randomBytes(Act.three.byteCount - 1))
            note(connection.readToEnd(seconds: 5), &tally)
        }
    }

    /// Garbage at each stage: preamble, act 1, act 3, ciphertext, frame.
    func garbage(_ number: Int, _ tally: inout Tally) throws {
        let connection = try RawConnection(from: Source(number), to: target.address)
        let token = SharedTokens.cached(target)[number]
        switch number % 5 {
        case 0: connection.write(randomBytes(1 + number % 2_000))
        case 1: connection.write(HostileLink.preamble(token.bytes) + randomBytes(Act.one.byteCount))
        case 2:
            let greeting = try HostileLink.greeting(token, identity: Self.identity, remote: target.card.key)
            connection.write(greeting.bytes)
            _ = connection.read(Act.two.byteCount)
            connection.write(randomBytes(Act.three.byteCount))
        default:
            let link = try HostileLink(connection, token: token, identity: Self.identity, remote: target.card.key)
            let bytes = randomBytes(1 + number % 3_000)
            // The length of unsealed bytes is not authentic: the node reads nothing more.
            if number % 5 == 3 { connection.write(bytes) } else { try link.send(bytes: bytes) }
        }
        note(connection.readToEnd(seconds: Self.patience), &tally)
    }

    /// Authentic frames with no bytes and with the maximum, and one that never ends.
    func frames(_ number: Int, _ tally: inout Tally) throws {
        let link = try target.link(number, Self.identity)
        switch number % 3 {
        case 0: for _ in 0..<100 { try link.send(bytes: []) }
        case 1: try link.send(bytes: randomBytes(TransportState.maximumFrameByteCount))
        default:
            // Nested fields to the greatest depth.
            try link.send(bytes: [UInt8](repeating: 0x0B, count: TransportState.maximumFrameByteCount))
        }
        note(link.connection.readToEnd(seconds: Self.patience), &tally)
    }

    func knock(_ number: Int, _ tally: inout Tally) throws {
        let connection = try RawConnection(from: Source(number), to: target.address)
        connection.write(HostileLink.preamble(randomBytes(16), kind: 0x6B) + [2, 0] + randomBytes(512))
        note(connection.readToEnd(seconds: 5), &tally)
    }

    /// Forged invitations to unreachable addresses, as many as the link accepts.
    func invitations(_ number: Int, _ tally: inout Tally) throws {
        let link = try target.link(number)
        for _ in 0..<100 {
            try link.send(invitation())
            tally.count += 1
        }
        link.connection.drain()
    }

    private func invitation() -> Frame {
        var random = SystemRandomness()
        let slug = "mayfly:join/" + Base64URL.encode(randomBytes(400))
        return .invitation(Invitation(id: .random(&random), slug: slug, name: "gift"))
    }

    /// The same over the maximum number of links, which the guests keep open.
    func openInvitations() -> Tally {
        inParallel(effort.threads) { thread, tally in
            var links: [HostileLink] = []
            var number = thread
            while effort.goesOn(tally) {
                number += effort.threads
                guard links.count < effort.crowd / effort.threads, let link = try? target.link(number) else {
                    tally.refused += 1
                    usleep(1_000)
                    continue
                }
                links.append(link)
                for _ in 0..<25 {
                    guard (try? link.send(invitation())) != nil else { break }
                    tally.count += 1
                }
            }
            tally.held = links.count
        }
    }

    /// A join request with a widely shared invite.
    func join(_ number: Int, _ tally: inout Tally) throws {
        let invite = try InviteSlug.decode(target.crowded)
        let identity = makeIdentity()
        let link = try target.link(target.crowded, invite, number, identity)
        try link.send(.joinRequest(HostileMember.request(invite, identity: identity)))
        tally.count += 1
        noteAnswer(link, &tally)
    }

    /// A handshake by the invite of a sleeping conversation.
    func wake(_ number: Int, _ tally: inout Tally) throws {
        guard !target.sleeping.isEmpty else {
            tally.count += 1
            return
        }
        let slug = target.sleeping[number &* 7_919 % target.sleeping.count]
        let invite = try InviteSlug.decode(slug)
        _ = try target.link(slug, invite, number, Self.identity)
        tally.count += 1
    }

    /// A stranger requests a reservation and streams, and fills them.
    func relay(_ number: Int, _ tally: inout Tally) throws {
        let link = try target.link(number)
        var random = SystemRandomness()
        for index in 0..<100 {
            let stream = RelayStreamID(UInt32(index / 5))
            let request: RelayRequest =
                switch index % 5 {
                case 0: .reserve([.random(&random)])
                case 1: .open(.random(&random))
                case 2: .stream(stream, .data(randomBytes(Limits.relayPieceByteCount)))
                case 3: .stream(stream, .credit(Limits.relayWindow))
                default: .release
                }
            try link.send(.relayRequest(request))
            tally.count += 1
        }
        noteAnswer(link, &tally)
    }

    /// Garbage on the control socket, by a process that may open it.
    func control(_ number: Int, _ tally: inout Tally) throws {
        let socket = try RawConnection(control: target.socket)
        let bytes: [UInt8] =
            switch number % 5 {
            case 0: randomBytes(1 + number % 5_000)
            case 1: [UInt8](repeating: 0x7B, count: 2 << 20)
            case 2: [UInt8](repeating: 0x5B, count: 100_000) + [0x0A]
            case 3: Array(#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"conversation":null}}"#.utf8) + [0x0A]
            default:
                Array(#"{"jsonrpc":"2.0","id":1e999,"method":"status","params":[[[]]]}"#.utf8) + [0x0A, 0x00, 0x0A]
            }
        tally.count += 1
        guard socket.write(bytes) else { return }
        shutdown(socket.descriptor, Int32(SHUT_WR))
        _ = socket.waitForBytes(seconds: 1)
    }

    private func noteAnswer(_ link: HostileLink, _ tally: inout Tally) {
        guard link.connection.waitForBytes(seconds: Self.patience) else { return }
        if link.connection.hasEnded { tally.refused += 1 } else { tally.answered += 1 }
    }

    private func note(_ byteCount: Int?, _ tally: inout Tally) {
        tally.count += 1
        guard let byteCount else { return }
        tally.refused += 1
        if byteCount > 0 { tally.answered += 1 }
    }
}

extension SharedTokens {
    private static let tables = Mutex<[String: SharedTokens]>([:])

    static func cached(_ target: Target) -> SharedTokens {
        cached(target.card.description, SharedTokens(card: target.card, day: target.day))
    }

    static func cached(_ slug: String, _ invite: VerifiedInvite, _ day: UInt32) -> SharedTokens {
        cached(slug, SharedTokens(invite: invite, day: day))
    }

    private static func cached(_ name: String, _ make: @autoclosure () -> SharedTokens) -> SharedTokens {
        tables.withLock { tables in
            let known = tables[name] ?? make()
            tables[name] = known
            return known
        }
    }
}
