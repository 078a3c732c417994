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

    /// Whole frames, or a piece of the stream that may be its last.
    @Test(
        arguments: [
            (nil, [9]),  // no such frame
            (nil, [2, 0x7f, 0xff, 0, 0, 0]),  // acknowledges an unsent packet
            (nil, [3, 0x80, 0x20, 0, 0, 1, 7]),  // beyond the credit of 1 MiB
            (nil, [3, 0x44, 0, 0xff]),  // longer than the packet
            (false, [0xff, 0xff, 0xff, 0xff]),  // a message of 4 GiB
            (false, [0, 1, 0, 0]),  // of 65,536
            (true, [0, 0]),  // the stream ends within a message
        ] as [(Bool?, [UInt8])]) func `an authentic packet with forbidden frames or lengths ends the link`(
            isLast: Bool?, bytes: [UInt8]
        ) throws
    {
        let pair = try resting(4)
        let near = try #require(pair.nearLink)
        var header: [UInt8] = []
        if let isLast {
            let offset = try #require(pair.farLink).inbound.contiguous
            DatagramFrame.appendDataHeader(offset: offset, length: bytes.count, isLast: isLast, to: &header)
        }
        pair.far.receive(near.forge(header + bytes), from: pair.near.address)
        pair.network.run(for: 1_000_000)
        #expect(pair.far.closed.values.first == .protocolViolation)
        #expect(pair.near.closed.values.first == .closedByPeer)
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
    enum Event: CaseIterable { case send, close, abort, peersClose, data, silence, networkChange }

    /// Where an event leads from each state, in the order of the states, and what the owner hears.
    private static let table: [Event: [(Cell, [DatagramLink.Event])]] = [
        .send: [(.open, []), (.finishing, []), (.lingering, []), (.gone, [])],
        .close: [(.finishing, []), (.finishing, []), (.lingering, []), (.gone, [])],
        .abort: [
            (.lingering, [.closed(.protocolViolation)]), (.lingering, [.closed(.protocolViolation)]), (.lingering, []),
            (.gone, []),
        ], .peersClose: [(.gone, [.closed(.closedByPeer)]), (.gone, [.closed(.duplicate)]), (.gone, []), (.gone, [])],
        .data: [(.open, [.readable]), (.finishing, [.readable]), (.lingering, []), (.gone, [])],
        .silence: [(.lingering, [.closed(.silent)]), (.lingering, [.closed(.duplicate)]), (.gone, []), (.gone, [])],
        .networkChange: [(.open, []), (.finishing, []), (.lingering, []), (.gone, [])],
    ]

    private func link(in cell: Cell) throws -> (Pair, DatagramLink) {
        let pair = try resting(20)
        let link = try #require(pair.nearLink)
        switch cell {
        case .open: break
        case .finishing: link.close(.duplicate, at: pair.network.now)
        case .lingering: link.abort(.shutDown, at: pair.network.now)
        case .gone: link.closedByPeer()
        }
        link.events = []
        return (pair, link)
    }

    private func cell(_ link: DatagramLink) -> Cell {
        switch link.state {
        case .open: .open
        case .finishing: .finishing
        case .lingering: .lingering
        case .gone: .gone
        }
    }

    private func receive(_ frames: [UInt8], _ link: DatagramLink, _ pair: Pair) throws {
        let packet = try #require(pair.farLink).forge(frames)
        let number = packet.bigEndian(at: 11)
        _ = link.receive(packet, epoch: packet[2], number: number, from: pair.far.address, at: pair.network.now)
    }

    @Test(arguments: Cell.allCases, Event.allCases) func `an event has the effect of the table in each state`(
        cell: Cell, event: Event
    ) throws {
        let (pair, link) = try link(in: cell)
        let now = pair.network.now
        let isActive = cell == .open || cell == .finishing
        switch event {
        case .send where cell == .open: try link.send([1], at: now)
        case .send: #expect(throws: LinkSendError.closed) { try link.send([1], at: now) }
        case .close: link.close(.requested, at: now)
        case .abort: link.abort(.protocolViolation, at: now)
        case .peersClose: try receive([8, 3], link, pair)
        case .data:
            var frames: [UInt8] = []
            DatagramFrame.appendDataHeader(offset: 0, length: 5, isLast: false, to: &frames)
            try receive(frames + [0, 0, 0, 1, 77], link, pair)
        case .silence: link.timeout(at: now + 40_000_000)
        case .networkChange: link.networkChanged(at: now)
        }
        let expected = try #require(Self.table[event]?[Cell.allCases.firstIndex(of: cell) ?? 0])
        #expect(self.cell(link) == expected.0 && link.events == expected.1)
        switch event {
        case .send: #expect(link.isWritable == (cell == .open))
        case .close:
            guard case .finishing(let reason, _) = link.state else { break }
            #expect(reason == (cell == .open ? .requested : .duplicate))
        case .abort where isActive: #expect(link.poll(at: now) != nil && link.poll(at: now) == nil)
        case .peersClose: #expect(link.poll(at: now) == nil && link.deadline == nil)
        case .data:
            #expect(cell != .lingering || link.owesClose)
            #expect(link.read(at: now) == (isActive ? [77] : nil) && link.read(at: now) == nil)
        case .networkChange: #expect((link.poll(at: now) != nil) == (cell != .gone))
        case .abort, .silence: break
        }
    }

    @Test func `a lingering link answers packets with its close ever more rarely`() throws {
        let (pair, link) = try link(in: .lingering)
        #expect(link.poll(at: pair.network.now) != nil)
        var closes = 0
        for _ in 0..<100 {
            try receive([1], link, pair)
            if link.poll(at: pair.network.now) != nil { closes += 1 }
        }
        #expect((3...7).contains(closes))
    }
}
