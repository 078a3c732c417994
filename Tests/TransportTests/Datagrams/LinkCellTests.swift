import Cryptography
import Testing

@testable import Transport

extension DatagramLink {
    /// An authentic packet with any contents, as a misbehaving peer would send it.
    func forge(_ frames: [UInt8], number: UInt64? = nil) -> [UInt8] {
        let number = number ?? nextNumber
        nextNumber = max(nextNumber, number + 1)
        var packet = DatagramPacket.sealed(epoch: keys.epoch, receiver: remoteID, number: number).bytes + frames
        keys.seal(&packet, number: number)
        return packet
    }

    /// State that a refused datagram must not change.
    var fingerprint: String {
        """
        \(state) \(replay.next) \(nextNumber) \(received.isOwed) \(received.deadline ?? -1) \(sent.outstanding) \
        \(outbound.byteCount) \(outbound.credit) \(inbound.contiguous) \(inbound.byteCount) \(path.address) \
        \(path.inFlight) \(path.roundTrip) \(path.congestion.window) \(responses.count) \(lastReceivedAt) \(bytesIn) \
        \(keys.epoch) \(keys.receivingEpoch) \(events.filter { if case .rejected = $0 { false } else { true } })
        """
    }
}

private func resting(_ seed: UInt64, limits: DatagramLimits = DatagramLimits()) throws -> Pair {
    let pair = try Pair.opened(seed, Conditions(delay: 10_000), limits: limits)
    pair.near.waiting = makeMessages(5, seed: 1)
    pair.network.run(for: 3_000_000)
    try #require(pair.far.received.count == 5)
    return pair
}

@Suite struct AuthenticityTests {
    @Test func `a packet with any bit changed has no effect, and the original is taken once`() throws {
        let pair = try resting(1)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        let packet = near.forge([1, 0, 0, 0])
        let before = far.fingerprint
        for bit in 0..<8 * packet.count {
            var changed = packet
            changed[bit / 8] ^= 1 << (bit % 8)
            pair.far.endpoint.receive(changed, from: pair.near.address, at: pair.network.now)
            #expect(far.fingerprint == before, "bit \(bit)")
        }
        for length in 0..<packet.count {
            pair.far.endpoint.receive(Array(packet.prefix(length)), from: pair.near.address, at: pair.network.now)
            #expect(far.fingerprint == before)
        }
        pair.far.endpoint.receive(packet, from: pair.near.address, at: pair.network.now)
        let after = far.fingerprint
        #expect(after != before)
        // The packet repeats, also from another address.
        for address in [pair.near.address, DatagramAddress(v4: 9, port: 9)] {
            pair.far.endpoint.receive(packet, from: address, at: pair.network.now)
            #expect(far.fingerprint == after)
        }
        while let event = pair.far.endpoint.nextEvent() {
            if case .rejected(let rejection) = event {
                #expect([.notAuthentic, .replayed, .unknownProtocol, .unknownConnection].contains(rejection))
            }
        }
    }

    @Test(
        arguments: [
            [9],  // no such frame
            [2, 0x7f, 0xff, 0, 0, 0],  // acknowledges an unsent packet
            [3, 0x80, 0x20, 0, 0, 1, 7],  // beyond the credit of 1 MiB
            [3, 0x44, 0, 0xff],  // longer than the packet
        ] as [[UInt8]]) func `an authentic packet with forbidden frames ends the link`(frames: [UInt8]) throws
    {
        let pair = try resting(4)
        let near = try #require(pair.nearLink)
        pair.far.endpoint.receive(near.forge(frames), from: pair.near.address, at: pair.network.now)
        pair.network.run(for: 1_000_000)
        #expect(pair.far.closed.values.first == .protocolViolation)
        #expect(pair.near.closed.values.first == .closedByPeer)
    }

    @Test(
        arguments: [
            ([0xff, 0xff, 0xff, 0xff], false),  // a message of 4 GiB
            ([0, 1, 0, 0], false),  // of 65,536
            ([0, 0], true),  // the stream ends within a message
        ] as [([UInt8], Bool)])
    func `a message ends the link at once if its length is too large or its stream ends within it`(
        bytes: [UInt8], isLast: Bool
    ) throws {
        let pair = try resting(6)
        let near = try #require(pair.nearLink)
        let offset = try #require(pair.farLink).inbound.contiguous
        var frames: [UInt8] = []
        DatagramFrame.appendDataHeader(offset: offset, length: bytes.count, isLast: isLast, to: &frames)
        pair.far.receive(near.forge(frames + bytes), from: pair.near.address)
        pair.network.run(for: 1_000_000)
        #expect(pair.far.closed.values.first == .protocolViolation)
    }

    @Test func `pieces beyond the limit of gaps are dropped without closing the link`() throws {
        var limits = DatagramLimits()
        limits.receivedRanges = 16
        let pair = try resting(8, limits: limits)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        let start = far.inbound.contiguous
        for index in 0..<200 as Range<UInt64> {
            var frames: [UInt8] = []
            DatagramFrame.appendDataHeader(offset: start + 10 + 3 * index, length: 1, isLast: false, to: &frames)
            pair.far.endpoint.receive(near.forge(frames + [1]), from: pair.near.address, at: pair.network.now)
        }
        #expect(pair.far.closed.isEmpty)
        #expect(far.inbound.byteCount <= 10 + 3 * 17)
    }
}

@Suite struct FlowTests {
    @Test func `a sender stops at the window of a peer that does not read, then resumes`() throws {
        let pair = try resting(1)
        pair.far.reads = false
        pair.near.writes = 0
        pair.near.waiting = (0..<60).map { [UInt8](repeating: UInt8($0), count: 50_000) }
        pair.network.run(for: 20_000_000)
        let (near, far) = (try #require(pair.nearLink), try #require(pair.farLink))
        #expect(far.inbound.byteCount <= 1 << 20 && far.inbound.byteCount > 900_000)
        #expect(!near.isWritable && pair.near.writes < 60)
        #expect(pair.near.closed.isEmpty)
        pair.far.reads = true
        pair.far.received = []
        pair.far.readAll(try #require(pair.far.link))
        #expect(pair.network.run(for: 20_000_000) { pair.far.received.count == 60 })
        #expect(pair.far.received == pair.near.waiting)
    }

    @Test func `a link closes at 8 MiB of unsent messages and refuses a message of 65,536 bytes`() throws {
        let pair = try resting(2)
        let number = try #require(pair.near.link)
        #expect(throws: LinkSendError.tooLong) {
            try pair.near.endpoint.send([UInt8](repeating: 0, count: 65_536), on: number, at: pair.network.now)
        }
        #expect(throws: LinkSendError.outboundOverflow) {
            for _ in 0..<200 {
                try pair.near.endpoint.send([UInt8](repeating: 0, count: 65_535), on: number, at: pair.network.now)
            }
        }
        pair.network.run(for: 2_000_000)
        #expect(pair.near.closed[number] == .outboundOverflow)
        #expect(pair.far.closed.values.first == .closedByPeer)
        #expect(throws: LinkSendError.closed) { try pair.near.endpoint.send([], on: number, at: pair.network.now) }
    }
}

@Suite struct StateCellTests {
    enum Cell: CaseIterable { case open, finishing, lingering, gone }

    private func link(in cell: Cell) throws -> (Pair, UInt64, DatagramLink) {
        let pair = try resting(20)
        let number = try #require(pair.near.link)
        let link = try #require(pair.nearLink)
        switch cell {
        case .open: break
        case .finishing: link.close(.duplicate, at: pair.network.now)
        case .lingering: link.abort(.shutDown, at: pair.network.now)
        case .gone: link.closedByPeer()
        }
        link.events = []
        return (pair, number, link)
    }

    private func isSame(_ link: DatagramLink, _ cell: Cell) -> Bool {
        switch (link.state, cell) {
        case (.open, .open), (.finishing, .finishing), (.lingering, .lingering), (.gone, .gone): true
        default: false
        }
    }

    @Test(arguments: Cell.allCases) func `a send is refused unless the link is open`(cell: Cell) throws {
        let (pair, _, link) = try link(in: cell)
        if cell == .open {
            try link.send([1], at: pair.network.now)
        } else {
            #expect(throws: LinkSendError.closed) { try link.send([1], at: pair.network.now) }
        }
        #expect(isSame(link, cell) && link.isWritable == (cell == .open))
    }

    @Test(arguments: Cell.allCases) func `a close finishes an open link and changes no other state`(cell: Cell) throws {
        let (pair, _, link) = try link(in: cell)
        link.close(.requested, at: pair.network.now)
        #expect(isSame(link, cell == .open ? .finishing : cell) && link.events.isEmpty)
        if case .finishing(let reason, _) = link.state { #expect(reason == (cell == .open ? .requested : .duplicate)) }
    }

    @Test(arguments: Cell.allCases) func `an abort makes an open or finishing link linger, and changes no other state`(
        cell: Cell
    ) throws {
        let (pair, _, link) = try link(in: cell)
        link.abort(.protocolViolation, at: pair.network.now)
        switch cell {
        case .open, .finishing:
            #expect(isSame(link, .lingering) && link.events == [.closed(.protocolViolation)])
            #expect(link.poll(at: pair.network.now) != nil && link.poll(at: pair.network.now) == nil)
        case .lingering, .gone: #expect(isSame(link, cell) && link.events.isEmpty)
        }
    }

    @Test(arguments: Cell.allCases) func `the peer's close makes a link in any state gone`(cell: Cell) throws {
        let (pair, _, link) = try link(in: cell)
        let packet = try #require(pair.farLink).forge([8, 3])
        let number = UInt64(bigEndian: packet[11..<19].reduce(0) { $0 << 8 | UInt64($1) }).bigEndian
        _ = link.receive(packet, epoch: packet[2], number: number, from: pair.far.address, at: pair.network.now)
        #expect(isSame(link, .gone))
        switch cell {
        case .open: #expect(link.events == [.closed(.closedByPeer)])
        case .finishing: #expect(link.events == [.closed(.duplicate)])
        case .lingering, .gone: #expect(link.events.isEmpty)
        }
        #expect(link.poll(at: pair.network.now) == nil && link.deadline == nil)
    }

    @Test(arguments: Cell.allCases) func `data reach the owner of an open or finishing link only`(cell: Cell) throws {
        let (pair, _, link) = try link(in: cell)
        var frames: [UInt8] = []
        DatagramFrame.appendDataHeader(offset: 0, length: 5, isLast: false, to: &frames)
        let packet = try #require(pair.farLink).forge(frames + [0, 0, 0, 1, 77])
        let number = UInt64(packet[11..<19].reduce(0) { $0 << 8 | UInt64($1) })
        _ = link.receive(packet, epoch: packet[2], number: number, from: pair.far.address, at: pair.network.now)
        #expect(isSame(link, cell))
        switch cell {
        case .open, .finishing:
            #expect(link.events == [.readable])
            #expect(link.read(at: pair.network.now) == [77] && link.read(at: pair.network.now) == nil)
        case .lingering: #expect(link.events.isEmpty && link.read(at: pair.network.now) == nil && link.owesClose)
        case .gone: #expect(link.events.isEmpty && link.read(at: pair.network.now) == nil)
        }
    }

    @Test(arguments: Cell.allCases) func `silence makes an open or finishing link linger, and a lingering one gone`(
        cell: Cell
    ) throws {
        let (pair, _, link) = try link(in: cell)
        let now = pair.network.now + 40_000_000
        link.timeout(at: now)
        switch cell {
        case .open: #expect(link.events == [.closed(.silent)] && isSame(link, .lingering))
        case .finishing: #expect(link.events == [.closed(.duplicate)] && isSame(link, .lingering))
        case .lingering, .gone: #expect(link.events.isEmpty && isSame(link, .gone))
        }
    }

    @Test(arguments: Cell.allCases) func `a change of network makes every link but a gone one send a datagram`(
        cell: Cell
    ) throws {
        let (pair, _, link) = try link(in: cell)
        link.networkChanged(at: pair.network.now)
        #expect(isSame(link, cell) && link.events.isEmpty)
        let datagram = link.poll(at: pair.network.now)
        #expect((datagram != nil) == (cell != .gone))
    }

    @Test func `a lingering link answers packets with its close ever more rarely`() throws {
        let (pair, _, link) = try link(in: .lingering)
        #expect(link.poll(at: pair.network.now) != nil)
        var closes = 0
        let far = try #require(pair.farLink)
        for _ in 0..<100 {
            let packet = far.forge([1])
            let number = UInt64(packet[11..<19].reduce(0) { $0 << 8 | UInt64($1) })
            _ = link.receive(packet, epoch: packet[2], number: number, from: pair.far.address, at: pair.network.now)
            if link.poll(at: pair.network.now) != nil { closes += 1 }
        }
        #expect((3...7).contains(closes))
    }
}
