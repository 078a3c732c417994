import Crypto
import Foundation
import Glibc
import Messaging
import Synchronization
import Transport
import Wire

/// What those may do who may use a rendezvous node: each has a reservation of its own, and is its own guests, too.
package struct RelayUsers: Sendable {
    private let target: Target
    private let effort: Effort

    init(_ target: Target, _ effort: Effort) {
        self.target = target
        self.effort = effort
    }

    /// As many streams to oneself as there may be, filled in both directions, and read at both ends.
    func loops() -> Tally {
        each(0) { user, tally in
            let circle = try Circle(target, user, streams: Limits.streamsPerReservation)
            let piece = randomBytes(Limits.relayPieceByteCount)
            while goesOn(tally) || tally.count == 0 {
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

    /// The same, in pieces of one byte: as little as a frame can hold.
    func pieces() -> Tally {
        each(1) { user, tally in
            let circle = try Circle(target, user, streams: Limits.streamsPerReservation)
            while goesOn(tally) || tally.count == 0 {
                let before = (tally.count, tally.answered)
                for index in circle.guests.indices { try circle.trickle(256, by: index, &tally) }
                while goesOn(tally), try circle.takeAtHolder(answeringWith: nil, &tally) {}
                if before == (tally.count, tally.answered) { usleep(1_000) }
            }
            tally.held = circle.guests.count
        }
    }

    /// Streams that are filled, and that nobody reads; and then again.
    func deaf() -> Tally {
        each(2) { user, tally in
            let piece = randomBytes(Limits.relayPieceByteCount)
            while goesOn(tally) || tally.count == 0 {
                let circle = try Circle(target, user, streams: Limits.streamsPerReservation, isPatient: false)
                // Each side a window, in both directions, and one byte more at last, which is against the protocol.
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

    /// Asks for a reservation and gives it up; asks a hundred times; and takes it over by a second link, while the first one
    /// has asked so often that the node reads no more of it.
    func moves() -> Tally {
        each(3) { user, tally in
            var number = 0
            var hasty: HostileLink?
            while goesOn(tally) || tally.count == 0 {
                number += 1
                let link = try link(user, number)
                for _ in 0..<(number % 10 == 0 ? 100 : 1) {
                    try link.send(.relayRequest(.reserve([Circle.label])))
                    tally.count += 1
                }
                guard try answer(link) != nil else {
                    throw Failure("no reservation: \(link.connection.hasEnded ? "closed" : "no answer")")
                }
                tally.answered += 1
                hasty = nil
                switch number % 5 {
                case 0:
                    // More than the node takes of anybody in one go; what is left waits there.
                    let requests = try (0..<Self.hastyCount).flatMap { _ in
                        try link.seal(.relayRequest(.reserve([Circle.label])))
                    }
                    link.connection.write(requests)
                    tally.count += Self.hastyCount
                    hasty = link
                case 1, 3: try link.send(.relayRequest(.release))
                // It is gone without a word.
                default: break
                }
            }
            withExtendedLifetime(hasty) {}
        }
    }

    /// As many labels as fit into a request, named and withdrawn again as fast as the node reads: each costs it a derivation.
    func labels() -> Tally {
        each(4) { user, tally in
            let link = try link(user, 1)
            var random = SystemRandomness()
            var isFirst = true
            while goesOn(tally) || tally.count == 0 {
                let labels = (0..<Limits.relayLabelCount).map { _ in RelayLabel.random(&random) }
                for request in [RelayRequest.reserve(labels), .withdraw(labels), .reserve(labels)] {
                    guard isFirst || link.connection.canWrite else { continue }
                    try link.send(.relayRequest(request))
                    tally.count += 1
                }
                if isFirst, try answer(link) == nil { throw Failure("no reservation") }
                isFirst = false
                while link.connection.waitForBytes(seconds: 0) {
                    guard try link.receive() != nil else { throw Failure("the link was closed") }
                    tally.answered += 1
                }
                if !link.connection.canWrite { usleep(10_000) }
            }
        }
    }

    /// Streams to reservations that nobody has, one for each link; and, over UDP, from where one is seen.
    func questions() -> Tally {
        inParallel(2) { thread in
            var part = effort
            (part.threads, part.limit) = (1, effort.limit / 2)
            if thread == 0 { return Datagrams(target, part).questions() }
            var tally = Tally()
            var random = SystemRandomness()
            while part.goesOn || tally.count == 0, tally.count < part.limit, tally.failure == nil {
                do {
                    let link = try link(makeIdentity(), tally.count)
                    try link.send(.relayRequest(.open(.random(&random))))
                    tally.count += 1
                    if let frame = try link.receive(seconds: 2) {
                        guard case .relayAnswer(.stream(_, .close)) = frame else { throw Failure("a stream to nobody") }
                        tally.answered += 1
                    }
                } catch { tally.failure = "\(error)" }
            }
            return tally
        }
    }

    // MARK: How

    private func goesOn(_ tally: Tally) -> Bool { effort.goesOn && tally.count < effort.limit / effort.threads }

    /// Kinds of abuse that need users of their own: what one of them may open comes back slowly.
    package static let kindCount = 5
    private static let usersEach = 2
    private static let hastyCount = 2 * Limits.idleFrameGroup * Limits.idleFrameBurst
    /// Users of a node that are needed in all.
    package static let userCount = kindCount * usersEach

    /// A thread for each user of a kind.
    private func each(_ kind: Int, _ body: @escaping @Sendable (IdentityKey, inout Tally) throws -> Void) -> Tally {
        inParallel(Self.usersEach) { thread in
            var tally = Tally()
            do {
                let index = kind * Self.usersEach + thread
                guard target.users.indices.contains(index) else { throw Failure("nobody whom the node serves") }
                try body(target.users[index], &tally)
            } catch { tally.failure = "\(error)" }
            return tally
        }
    }

    private func link(_ identity: IdentityKey, _ number: Int) throws -> HostileLink {
        try Circle.link(target, identity, number)
    }

    /// What the node says to a request for a reservation.
    private func answer(_ link: HostileLink) throws -> RelayGrant? {
        while let frame = try link.receive() { if case .relayAnswer(.reserved(let grant)) = frame { return grant } }
        return nil
    }
}

/// A served node and its own guests.
private final class Circle {
    struct Guest {
        let link: HostileLink
        let number: RelayStreamID
        /// Bytes that it may send, and bytes that have come for which it has given no credit.
        var credit = Limits.relayWindow
        var unread = 0
    }

    private static let quarter = Limits.relayWindow / 4
    /// Of the one inbox for which there are streams.
    static let label = RelayLabel(unchecked: [UInt8](repeating: 7, count: RelayLabel.byteCount))

    private let holder: HostileLink
    private(set) var guests: [Guest] = []
    /// Of the holder, for each stream: what it may send, and what it has read.
    private var credit: [RelayStreamID: Int] = [:]
    private var unread: [RelayStreamID: Int] = [:]

    /// - Parameter isPatient: whether fewer streams than were asked for will do, and are not waited for.
    init(_ target: Target, _ user: IdentityKey, streams: Int, isPatient: Bool = true) throws {
        holder = try Self.link(target, user, Int.random(in: 0..<50_000))
        try holder.send(.relayRequest(.reserve([Self.label])))
        var grant: RelayGrant?
        while grant == nil, let frame = try holder.receive() {
            if case .relayAnswer(.reserved(let granted)) = frame { grant = granted }
        }
        guard let grant else { throw Failure("no reservation") }
        let secret = RelaySecret(rendezvous: target.card.key, user: user.publicKey, own: user)
        let reservation = secret.reservation(Self.label)
        for index in 0..<min(streams, grant.streamsPerReservation) {
            // Each from a network of its own: what one of these may open is bounded, too.
            let link = try Self.link(target, makeIdentity(), Int.random(in: 0..<50_000) + index)
            try link.send(.relayRequest(.open(reservation)))
            // The first must come; that there are no more is heard of nobody.
            guard let number = try incoming(seconds: isPatient && guests.isEmpty ? 60 : 1) else { break }
            guests.append(Guest(link: link, number: number))
            (credit[number], unread[number]) = (Limits.relayWindow, 0)
        }
        // The second time the node lets them open one each 2 s only.
        if guests.isEmpty, isPatient { throw Failure("no stream") }
    }

    static func link(_ target: Target, _ identity: IdentityKey, _ number: Int) throws -> HostileLink {
        let connection = try RawConnection(from: Source(number), to: target.address)
        // Nobody who does not read holds this program up.
        var patience = timeval(tv_sec: 5, tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        setsockopt(connection.descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, size)
        return try HostileLink(
            connection, token: SharedTokens.cached(target)[number], identity: identity, remote: target.card.key)
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

    /// - Returns: whether there was credit for it.
    func push(_ piece: [UInt8], by index: Int, _ tally: inout Tally) throws -> Bool {
        guard guests[index].credit >= piece.count else { return false }
        guests[index].credit -= piece.count
        try guests[index].link.send(.relayRequest(.stream(.guest, .data(piece))))
        tally.count += 1
        return true
    }

    /// So many bytes, one at a time, sealed together.
    func trickle(_ count: Int, by index: Int, _ tally: inout Tally) throws {
        // The node reads no faster than it likes: what it leaves waits here.
        guard guests[index].link.connection.canWrite else { return }
        let count = min(count, guests[index].credit)
        guests[index].credit -= count
        var bytes: [UInt8] = []
        for _ in 0..<count { bytes += try guests[index].link.seal(.relayRequest(.stream(.guest, .data([1])))) }
        guard guests[index].link.connection.write(bytes) else { throw Failure("the node does not read") }
        tally.count += count
        while try takeAtGuest(index, answeringWith: nil, &tally) {}
    }

    /// Reads what has come to a guest, gives credit for it, and answers as far as it may.
    /// - Returns: whether something had come.
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

    /// The same at the holder's end, for whichever stream.
    func takeAtHolder(answeringWith piece: [UInt8]?, _ tally: inout Tally) throws -> Bool {
        guard holder.connection.waitForBytes(seconds: 0), holder.connection.canWrite else { return false }
        guard let frame = try holder.receive() else { throw Failure("the holder's link was closed") }
        guard case .relayAnswer(.stream(let number, let word)) = frame else { return true }
        switch word {
        case .data(let bytes):
            tally.answered += 1
            unread[number, default: 0] += bytes.count
            // Of one byte each, there and back, when nothing else is wanted.
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
