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
            let circle = try Circle(target, user, streams: Limits.streamsPerReservation)
            let piece = randomBytes(Limits.relayPieceByteCount)
            while effort.goesOn(tally) {
                var isBusy = false
                for index in circle.guests.indices {
                    isBusy = try circle.push(piece, by: index, &tally) || isBusy
                    isBusy = try circle.takeAtGuest(index, answeringWith: piece, &tally) || isBusy
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
            let circle = try Circle(target, user, streams: Limits.streamsPerReservation)
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
                let circle = try Circle(target, user, streams: Limits.streamsPerReservation, isPatient: false)
                // Each side fills its window and then sends one byte more, a protocol violation.
                for _ in 0..<Limits.relayWindow / piece.count {
                    for index in circle.guests.indices {
                        try circle.guests[index].link.send(.relayRequest(.stream(.guest, .data(piece))))
                        try circle.sayAtHolder(.data(piece), to: circle.guests[index].number)
                        tally.count += 2
                    }
                }
                tally.held = max(tally.held, circle.guests.count)
                usleep(300_000)
                for guest in circle.guests { try guest.link.send(.relayRequest(.stream(.guest, .data([1])))) }
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

/// A served node that is its own guest.
private final class Circle {
    struct Guest {
        let link: HostileLink
        let number: RelayStreamID
        /// Bytes it may send, and received bytes without credit.
        var credit = Limits.relayWindow
        var unread = 0
    }

    private static let quarter = Limits.relayWindow / 4
    /// Label of the one inbox that has streams.
    static let label = RelayLabel(unchecked: [UInt8](repeating: 7, count: RelayLabel.byteCount))

    private let holder: HostileLink
    private(set) var guests: [Guest] = []
    /// The holder's credit and received bytes by stream.
    private var credit: [RelayStreamID: Int] = [:]
    private var unread: [RelayStreamID: Int] = [:]

    /// - Parameter isPatient: Requires a stream and waits for it; otherwise fewer than requested suffice.
    init(_ target: Target, _ user: IdentityKey, streams: Int, isPatient: Bool = true) throws {
        holder = try Self.link(target, user, Int.random(in: 0..<50_000))
        try holder.send(.relayRequest(.reserve([Self.label])))
        let grant = try holder.reservation()
        let secret = RelaySecret(rendezvous: target.card.key, user: user.publicKey, own: user)
        let reservation = secret.reservation(Self.label)
        for index in 0..<min(streams, grant.streamsPerReservation) {
            // Each guest has its own network, because a network's streams are limited.
            let link = try Self.link(target, makeIdentity(), Int.random(in: 0..<50_000) + index)
            try link.send(.relayRequest(.open(reservation)))
            // The first stream must open. The node does not report that the limit is reached.
            guard let number = try incoming(seconds: isPatient && guests.isEmpty ? 60 : 1) else { break }
            guests.append(Guest(link: link, number: number))
            (credit[number], unread[number]) = (Limits.relayWindow, 0)
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

    func sayAtHolder(_ frame: RelayStreamFrame, to number: RelayStreamID) throws {
        try holder.send(.relayRequest(.stream(number, frame)))
    }

    func push(_ piece: [UInt8], by index: Int, _ tally: inout Tally) throws -> Bool {
        guard guests[index].credit >= piece.count else { return false }
        guests[index].credit -= piece.count
        try guests[index].link.send(.relayRequest(.stream(.guest, .data(piece))))
        tally.count += 1
        return true
    }

    func trickle(_ count: Int, by index: Int, _ tally: inout Tally) throws {
        // The node reads at its own pace, so the rest waits.
        guard guests[index].link.connection.canWrite else { return }
        let count = min(count, guests[index].credit)
        guests[index].credit -= count
        var bytes: [UInt8] = []
        for _ in 0..<count { bytes += try guests[index].link.seal(.relayRequest(.stream(.guest, .data([1])))) }
        guard guests[index].link.connection.write(bytes) else { throw Failure("the node does not read") }
        tally.count += count
        while try takeAtGuest(index, answeringWith: nil, &tally) {}
    }

    /// Reads at a guest, gives credit and answers within its own. Returns whether data arrived.
    func takeAtGuest(_ index: Int, answeringWith piece: [UInt8]?, _ tally: inout Tally) throws -> Bool {
        let link = guests[index].link
        guard link.connection.waitForBytes(seconds: 0), link.connection.canWrite else { return false }
        guard let frame = try link.receive() else { throw Failure("a guest's link was closed") }
        switch frame {
        case .relayAnswer(.stream(_, .data(let bytes))):
            tally.answered += 1
            guests[index].unread += bytes.count
            guard guests[index].unread >= Self.quarter || piece == nil else { break }
            try link.send(.relayRequest(.stream(.guest, .credit(guests[index].unread))))
            guests[index].unread = 0
        case .relayAnswer(.stream(_, .credit(let count))): guests[index].credit += count
        case .relayAnswer(.stream(_, .close(let reason))): throw Failure("a stream was closed: \(reason)")
        default: break
        }
        return true
    }

    /// The same at the holder, for any stream.
    func takeAtHolder(answeringWith piece: [UInt8]?, _ tally: inout Tally) throws -> Bool {
        guard holder.connection.waitForBytes(seconds: 0), holder.connection.canWrite else { return false }
        guard let frame = try holder.receive() else { throw Failure("the holder's link was closed") }
        guard case .relayAnswer(.stream(let number, let word)) = frame else { return true }
        switch word {
        case .data(let bytes):
            tally.answered += 1
            unread[number, default: 0] += bytes.count
            // Without an answer to send, credit goes back byte by byte.
            let step = piece == nil ? 1 : Self.quarter
            if let count = unread[number], count >= step {
                try sayAtHolder(.credit(count), to: number)
                unread[number] = 0
            }
            let answer = piece ?? [1]
            if credit[number, default: 0] >= answer.count {
                credit[number, default: 0] -= answer.count
                try sayAtHolder(.data(answer), to: number)
                tally.count += 1
            }
        case .credit(let count): credit[number, default: 0] += count
        case .close(let reason): throw Failure("a stream was closed: \(reason)")
        case .end: break
        }
        return true
    }
}
