import Cryptography
import Foundation
import Glibc
import Messaging

/// Abuse by authorised users of a rendezvous node. Each has a reservation and is its own guest.
package struct RelayUsers: Attackers {
    let target: Target
    let effort: Effort

    /// The maximum number of streams to itself, filled in both directions and read at both ends.
    func loops() -> Tally {
        each(0) { user, tally in
            let circle = try Circle(target, user)
            let piece = randomBytes(Limits.relayPieceByteCount)
            while effort.goesOn(tally) {
                var isBusy = false
                for index in circle.guests.indices {
                    isBusy = try circle.push(piece, by: index, &tally) || isBusy
                    isBusy = try circle.takeAtGuest(index, isBytewise: false, &tally) || isBusy
                }
                isBusy = try circle.takeAtHolder(answeringWith: piece, &tally) || isBusy
                if !isBusy { usleep(1_000) }
            }
            tally.held = circle.guests.count
        }
    }

    /// The same, in pieces of one byte.
    func pieces() -> Tally {
        each(1) { user, tally in
            let circle = try Circle(target, user)
            while effort.goesOn(tally) {
                let before = (tally.count, tally.answered)
                for index in circle.guests.indices { try circle.trickle(256, by: index, &tally) }
                while effort.goesOn(tally), try circle.takeAtHolder(answeringWith: nil, &tally) {}
                if before == (tally.count, tally.answered) { usleep(1_000) }
            }
            tally.held = circle.guests.count
        }
    }

    /// Repeatedly filled streams that are not read.
    func deaf() -> Tally {
        each(2) { user, tally in
            let piece = randomBytes(Limits.relayPieceByteCount)
            while effort.goesOn(tally) {
                let circle = try Circle(target, user, isPatient: false)
                // Each side fills its window and then sends one byte more, a protocol violation.
                for _ in 0..<Limits.relayWindow / piece.count {
                    for end in circle.guests + circle.ends {
                        try end.say(.data(piece))
                        tally.count += 1
                    }
                }
                tally.held = max(tally.held, circle.guests.count)
                usleep(300_000)
                for guest in circle.guests { try guest.say(.data([1])) }
                usleep(100_000)
                tally.refused += circle.guests.count { $0.link.connection.hasEnded }
            }
        }
    }

    /// Reserves and releases; sends a hundred requests; and takes the reservation over by a second link while the first
    /// has more requests than the node reads.
    func moves() -> Tally {
        each(3) { user, tally in
            var number = 0
            var hasty: HostileLink?
            while effort.goesOn(tally) {
                number += 1
                let link = try link(user, number)
                for _ in 0..<(number % 10 == 0 ? 100 : 1) {
                    try link.send(.relayRequest(.reserve([Circle.label])))
                    tally.count += 1
                }
                _ = try link.reservation()
                tally.answered += 1
                hasty = nil
                switch number % 5 {
                case 0:
                    // More than the node reads in one turn; the rest waits.
                    let requests = try (0..<Self.hastyCount).flatMap { _ in
                        try link.seal(.relayRequest(.reserve([Circle.label])))
                    }
                    link.connection.write(requests)
                    tally.count += Self.hastyCount
                    hasty = link
                case 1, 3: try link.send(.relayRequest(.release))
                default: break
                }
            }
            withExtendedLifetime(hasty) {}
        }
    }

    /// Names and withdraws the maximum number of labels as fast as the node reads; each costs a derivation.
    func labels() -> Tally {
        each(4) { user, tally in
            let link = try link(user, 1)
            var random = SystemRandomness()
            var isFirst = true
            while effort.goesOn(tally) {
                let labels = (0..<Limits.relayLabelCount).map { _ in RelayLabel.random(&random) }
                for request in [RelayRequest.reserve(labels), .withdraw(labels), .reserve(labels)] {
                    guard isFirst || link.connection.canWrite else { continue }
                    try link.send(.relayRequest(request))
                    tally.count += 1
                }
                if isFirst { _ = try link.reservation() }
                isFirst = false
                while link.connection.waitForBytes(seconds: 0) {
                    guard try link.receive() != nil else { throw Failure("the link was closed") }
                    tally.answered += 1
                }
                if !link.connection.canWrite { usleep(10_000) }
            }
        }
    }

    /// Streams to unknown reservations, one per link; and questions for the observed address over UDP.
    func questions() -> Tally {
        inParallel(2) { thread, tally in
            var part = effort.alone
            part.limit /= 2
            if thread == 0 {
                tally = Datagrams(target: target, effort: part).questions()
                return
            }
            var random = SystemRandomness()
            while part.goesOn(tally) {
                let link = try link(makeIdentity(), tally.count)
                try link.send(.relayRequest(.open(.random(&random))))
                tally.count += 1
                if let frame = try link.receive(seconds: 2) {
                    guard case .relayAnswer(.stream(_, .close)) = frame else { throw Failure("a stream to nobody") }
                    tally.answered += 1
                }
            }
        }
    }

    /// Kinds of abuse with users of their own, because a user's allowance recovers slowly.
    package static let kindCount = 5
    private static let usersEach = 2
    private static let hastyCount = 2 * Limits.idleFrameGroup * Limits.idleFrameRate.burst
    package static let userCount = kindCount * usersEach

    private func each(_ kind: Int, _ body: @escaping @Sendable (IdentityKey, inout Tally) throws -> Void) -> Tally {
        inParallel(Self.usersEach) { thread, tally in
            let index = kind * Self.usersEach + thread
            guard target.users.indices.contains(index) else { throw Failure("nobody whom the node serves") }
            try body(target.users[index], &tally)
        }
    }

    private func link(_ identity: IdentityKey, _ number: Int) throws -> HostileLink {
        try Circle.link(target, identity, number)
    }
}

extension HostileLink {
    fileprivate func reservation() throws -> RelayGrant {
        while let frame = try receive() { if case .relayAnswer(.reserved(let grant)) = frame { return grant } }
        throw Failure("no reservation: \(connection.hasEnded ? "closed" : "no answer")")
    }
}

/// One end of a stream.
private struct End {
    private static let quarter = Limits.relayWindow / 4

    let link: HostileLink
    let number: RelayStreamID
    /// Bytes it may send, and received bytes without credit.
    var credit = Limits.relayWindow
    private var unread = 0

    init(_ link: HostileLink, _ number: RelayStreamID) { (self.link, self.number) = (link, number) }

    func frame(_ word: RelayStreamFrame) -> Frame { .relayRequest(.stream(number, word)) }

    func say(_ word: RelayStreamFrame) throws { try link.send(frame(word)) }

    /// Sends within the credit.
    mutating func push(_ piece: [UInt8], _ tally: inout Tally) throws -> Bool {
        guard credit >= piece.count else { return false }
        credit -= piece.count
        try say(.data(piece))
        tally.count += 1
        return true
    }

    /// - Parameter isBytewise: Credit goes back at once, otherwise in quarters of the window.
    mutating func hear(_ word: RelayStreamFrame, isBytewise: Bool, _ tally: inout Tally) throws {
        switch word {
        case .data(let bytes):
            tally.answered += 1
            unread += bytes.count
            guard isBytewise || unread >= Self.quarter else { break }
            try say(.credit(unread))
            unread = 0
        case .credit(let count): credit += count
        case .close(let reason): throw Failure("a stream was closed: \(reason)")
        case .end: break
        }
    }
}

/// A served node that is its own guest.
private final class Circle {
    /// Label of the one inbox that has streams.
    static let label = RelayLabel(unchecked: [UInt8](repeating: 7, count: RelayLabel.byteCount))

    private let holder: HostileLink
    private(set) var guests: [End] = []
    /// The holder's ends, in the order of the guests.
    private(set) var ends: [End] = []

    /// - Parameter isPatient: Requires a stream and waits for it; otherwise fewer than requested suffice.
    init(_ target: Target, _ user: IdentityKey, isPatient: Bool = true) throws {
        holder = try Self.link(target, user, Int.random(in: 0..<50_000))
        try holder.send(.relayRequest(.reserve([Self.label])))
        let grant = try holder.reservation()
        let secret = RelaySecret(rendezvous: target.card.key, user: user.publicKey, own: user)
        let reservation = secret.reservation(Self.label)
        for index in 0..<min(Limits.streamsPerReservation, grant.streamsPerReservation) {
            // Each guest has its own network, because a network's streams are limited.
            let link = try Self.link(target, makeIdentity(), Int.random(in: 0..<50_000) + index)
            try link.send(.relayRequest(.open(reservation)))
            // The first stream must open. The node does not report that the limit is reached.
            guard let number = try incoming(seconds: isPatient && guests.isEmpty ? 60 : 1) else { break }
            guests.append(End(link, .guest))
            ends.append(End(holder, number))
        }
        // On the second round the node permits one new stream per 2 s.
        if guests.isEmpty, isPatient { throw Failure("no stream") }
    }

    static func link(_ target: Target, _ identity: IdentityKey, _ number: Int) throws -> HostileLink {
        let link = try target.link(number, identity)
        // A peer that does not read must not block this program.
        var patience = timeval(tv_sec: 5, tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        setsockopt(link.connection.descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, size)
        return link
    }

    private func incoming(seconds: Double) throws -> RelayStreamID? {
        while holder.connection.waitForBytes(seconds: seconds), let frame = try holder.receive() {
            if case .relayAnswer(.incoming(let number, _)) = frame { return number }
        }
        return nil
    }

    func push(_ piece: [UInt8], by index: Int, _ tally: inout Tally) throws -> Bool {
        try guests[index].push(piece, &tally)
    }

    func trickle(_ count: Int, by index: Int, _ tally: inout Tally) throws {
        let link = guests[index].link
        // The node reads at its own pace, so the rest waits.
        guard link.connection.canWrite else { return }
        let count = min(count, guests[index].credit)
        guests[index].credit -= count
        let bytes = try (0..<count).flatMap { _ in try link.seal(guests[index].frame(.data([1]))) }
        guard link.connection.write(bytes) else { throw Failure("the node does not read") }
        tally.count += count
        while try takeAtGuest(index, isBytewise: true, &tally) {}
    }

    private func next(on link: HostileLink) throws -> Frame? {
        guard link.connection.waitForBytes(seconds: 0), link.connection.canWrite else { return nil }
        guard let frame = try link.receive() else { throw Failure("a link was closed") }
        return frame
    }

    /// Reads at a guest. Returns whether a frame arrived.
    func takeAtGuest(_ index: Int, isBytewise: Bool, _ tally: inout Tally) throws -> Bool {
        guard let frame = try next(on: guests[index].link) else { return false }
        if case .relayAnswer(.stream(_, let word)) = frame {
            try guests[index].hear(word, isBytewise: isBytewise, &tally)
        }
        return true
    }

    /// Reads at the holder, for any stream, and answers data: byte by byte without a piece.
    func takeAtHolder(answeringWith piece: [UInt8]?, _ tally: inout Tally) throws -> Bool {
        guard let frame = try next(on: holder) else { return false }
        guard case .relayAnswer(.stream(let number, let word)) = frame,
            let index = ends.firstIndex(where: { $0.number == number })
        else { return true }
        try ends[index].hear(word, isBytewise: piece == nil, &tally)
        if case .data = word { _ = try ends[index].push(piece ?? [1], &tally) }
        return true
    }
}
