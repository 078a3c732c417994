import Cryptography
import Glibc
import Messaging
import Transport

enum Strangers {
    /// Seconds an attempt waits for the node to close; the node's own limits are longer.
    private static let patience = 1.0

    /// An unknown token, and an act 1 that would cost a curve operation.
    static func badToken(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        let connection = try RawConnection(from: Source(number), to: target.address)
        connection.write(HostileLink.preamble(randomBytes(16)) + [0, 2] + randomBytes(48))
        note(connection.readToEnd(seconds: 5), &tally)
    }

    /// An act 1 with a wrong tag, from eight networks.
    static func noise(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        let connection = try RawConnection(from: Source(number % 8), to: target.address)
        let token = SharedTokens.cached(target)[3].bytes
        connection.write(HostileLink.preamble(token) + [0, 2] + randomBytes(Act.one.byteCount - 2))
        note(connection.readToEnd(seconds: 5), &tally)
    }

    /// A whole handshake with the card's token.
    static func handshake(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        _ = try target.link(number, identity)
        tally.count += 1
        tally.answered += 1
    }

    private static let identity = makeIdentity()

    static func replay(_ target: Target, _ effort: Effort) -> Tally {
        let tokens = SharedTokens.cached(target)
        guard let recorded = try? HostileLink.greeting(tokens[3], identity: identity, remote: target.card.key).bytes
        else { return Tally() }
        return inParallel(effort.threads) { thread, tally in
            var number = thread
            while effort.goesOn(tally) {
                number += effort.threads
                guard let connection = try? RawConnection(from: Source(number), to: target.address) else {
                    tally.refused += 1
                    continue
                }
                connection.write(recorded)
                // Act 2 needs the ephemeral key of act 1, so act 3 is a guess.
                guard connection.read(Act.two.byteCount) != nil else {
                    tally.count += 1
                    tally.refused += 1
                    continue
                }
                tally.answered += 1
                connection.write([0] + randomBytes(Act.three.byteCount - 1))
                note(connection.readToEnd(seconds: 5), &tally)
            }
        }
    }

    /// Garbage at each stage: preamble, act 1, act 3, ciphertext, frame.
    static func garbage(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        let connection = try RawConnection(from: Source(number), to: target.address)
        let token = SharedTokens.cached(target)[number]
        switch number % 5 {
        case 0: connection.write(randomBytes(1 + number % 2_000))
        case 1: connection.write(HostileLink.preamble(token.bytes) + randomBytes(Act.one.byteCount))
        case 2:
            let greeting = try HostileLink.greeting(token, identity: identity, remote: target.card.key)
            connection.write(greeting.bytes)
            _ = connection.read(Act.two.byteCount)
            connection.write(randomBytes(Act.three.byteCount))
        case 3:
            let link = try HostileLink(connection, token: token, identity: identity, remote: target.card.key)
            link.connection.write(randomBytes(1 + number % 3_000))
            // The length was not authentic: the node reads nothing more.
            note(link.connection.readToEnd(seconds: patience), &tally)
            return
        default:
            let link = try HostileLink(connection, token: token, identity: identity, remote: target.card.key)
            try link.send(bytes: randomBytes(1 + number % 3_000))
            note(link.connection.readToEnd(seconds: patience), &tally)
            return
        }
        note(connection.readToEnd(seconds: patience), &tally)
    }

    /// Authentic frames with no bytes and with the maximum, and one that never ends.
    static func frames(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        let link = try target.link(number, identity)
        switch number % 3 {
        case 0: for _ in 0..<100 { try link.send(bytes: []) }
        case 1: try link.send(bytes: randomBytes(TransportState.maximumFrameByteCount))
        default:
            // Nested fields to the greatest depth.
            try link.send(bytes: [UInt8](repeating: 0x0B, count: TransportState.maximumFrameByteCount))
        }
        note(link.connection.readToEnd(seconds: patience), &tally)
    }

    static func knock(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        let connection = try RawConnection(from: Source(number), to: target.address)
        connection.write(HostileLink.preamble(randomBytes(16), kind: 0x6B) + [2, 0] + randomBytes(512))
        note(connection.readToEnd(seconds: 5), &tally)
    }

    /// Forged invitations to unreachable addresses, as many as the link accepts.
    static func invitations(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        let link = try target.link(number)
        for _ in 0..<100 {
            try link.send(invitation())
            tally.count += 1
        }
        link.connection.drain()
    }

    private static func invitation() -> Frame {
        var random = SystemRandomness()
        let slug = "mayfly:join/" + Base64URL.encode(randomBytes(400))
        return .invitation(Invitation(id: .random(&random), slug: slug, name: "gift"))
    }

    /// The same over the maximum number of links, which the guests keep open.
    static func openInvitations(_ target: Target, _ effort: Effort) -> Tally {
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
    static func join(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        let invite = try InviteSlug.decode(target.crowded)
        let identity = makeIdentity()
        let link = try target.link(target.crowded, invite, number, identity)
        try link.send(.joinRequest(HostileMember.request(invite, identity: identity)))
        tally.count += 1
        if link.connection.waitForBytes(seconds: patience) {
            if link.connection.hasEnded { tally.refused += 1 } else { tally.answered += 1 }
        }
    }

    /// A handshake by the invite of a sleeping conversation.
    static func wake(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
        guard !target.sleeping.isEmpty else {
            tally.count += 1
            return
        }
        let slug = target.sleeping[number &* 7_919 % target.sleeping.count]
        let invite = try InviteSlug.decode(slug)
        _ = try target.link(slug, invite, number, identity)
        tally.count += 1
    }

    /// A stranger requests a reservation and streams, and fills them.
    static func relay(_ target: Target, _ number: Int, _ tally: inout Tally) throws {
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
        if link.connection.waitForBytes(seconds: patience) {
            if link.connection.hasEnded { tally.refused += 1 } else { tally.answered += 1 }
        }
    }

    static func note(_ byteCount: Int?, _ tally: inout Tally) {
        tally.count += 1
        guard let byteCount else { return }
        tally.refused += 1
        if byteCount > 0 { tally.answered += 1 }
    }
}

extension SharedTokens {
    private static let tables = MutexTable()

    static func cached(_ target: Target) -> SharedTokens {
        tables.value(target.card.description) { SharedTokens(card: target.card, day: target.day) }
    }

    static func cached(_ slug: String, _ invite: VerifiedInvite, _ day: UInt32) -> SharedTokens {
        tables.value(slug) { SharedTokens(invite: invite, day: day) }
    }
}
