import Cryptography
import NIOCore
import NIOEmbedded
import Testing
import Transport

/// Code exchanges at the transport: greetings, limits and timeouts.
@Suite struct CodeConnectionTests {
    private final class Creator {
        private let wire: Wire
        var messages: [[UInt8]] = []
        var connections: [CodeConnection] = []
        var ended = 0
        var respond: (CodeConnection, [UInt8]) -> Void = { _, _ in }

        init(_ wire: Wire) {
            self.wire = wire
            wire.responder.transport.events.code = { [token = wire.token] in $0 == token ? 4 : nil }
            wire.responder.transport.events.codeMessage = { [self] connection, message in
                messages.append(message)
                connections.append(connection)
                respond(connection, message)
            }
            wire.responder.transport.events.codeEnded = { [self] _ in ended += 1 }
        }

        var greeting: [UInt8] { [0x63] + wire.token.bytes }

        /// A connection that has sent its greeting and a message.
        func greet(_ message: [UInt8] = [1, 2, 3, 4], from address: String = "192.0.2.1") throws -> EmbeddedChannel {
            let channel = try wire.connection(from: address)
            try wire.send(greeting + message, to: channel)
            return channel
        }
    }

    private let wire: Wire
    private let creator: Creator

    init() throws {
        wire = try Wire()
        creator = Creator(wire)
    }

    @Test func `a code exchange takes messages of the requested lengths, and its last message closes it`() throws {
        creator.respond = { connection, message in
            if message.count == 4 { connection.answer([9, 9], expecting: 4_176) } else { connection.deliver([7]) }
        }
        let channel = try wire.connection()
        for byte in creator.greeting + [1, 2, 3, 4] { try wire.send([byte], to: channel) }
        #expect(creator.messages == [[1, 2, 3, 4]])
        #expect(try wire.written(channel) == [9, 9])
        // A message longer than the limit of bytes before authentication is read at any cut.
        for count in [4_100, 76] { try wire.send([UInt8](repeating: 5, count: count), to: channel) }
        #expect(creator.messages.last == [UInt8](repeating: 5, count: 4_176))
        #expect(try wire.written(channel) == [7])
        wire.loop.run()
        #expect(!channel.isActive && creator.ended == 1 && wire.responder.rejections.isEmpty)
        #expect(wire.responder.transport.connectionCount == 0)
    }

    @Test func `a greeting without an open code gets no answer and a close, as garbage does`() throws {
        for first in [0x63, 0x4d, 0x6b, 0x00] as [UInt8] {
            let channel = try wire.connection()
            try wire.send([first] + [UInt8](repeating: 3, count: 16) + [1, 2, 3, 4], to: channel)
            #expect(!channel.isActive)
            #expect(try wire.written(channel).isEmpty)
        }
        #expect(wire.responder.rejections == [.unknownToken, .unknownToken, .unknownToken, .unknownProtocol])
        #expect(creator.messages.isEmpty && creator.ended == 0)
    }

    @Test(arguments: [(3, false, 2_000), (4, true, 5_000), (4, false, 5_000)])
    func `a connection ends two seconds after its greeting and five after its message, and its owner hears of it once`(
        byteCount: Int, isAnswered: Bool, end: Int64
    ) throws {
        if isAnswered { creator.respond = { connection, _ in connection.answer([9], expecting: 3) } }
        let channel = try creator.greet(Array([1, 2, 3, 4].prefix(byteCount)))
        wire.loop.advanceTime(by: .milliseconds(end - 10))
        #expect(channel.isActive)
        wire.loop.advanceTime(by: .milliseconds(20))
        let count = byteCount == 4 ? 1 : 0
        #expect(!channel.isActive && creator.messages.count == count && creator.ended == count)
        #expect(wire.responder.rejections == [.timedOut])
        for connection in creator.connections {
            connection.answer([1], expecting: 1)
            connection.deliver([1])
            connection.close()
        }
        #expect(creator.ended == count)
    }

    @Test func `a connection drops bytes beyond a message, and closes when there are too many`() throws {
        let channel = try creator.greet([1, 2, 3, 4] + [UInt8](repeating: 5, count: 4_000))
        #expect(creator.messages == [[1, 2, 3, 4]] && channel.isActive)
        try wire.send([UInt8](repeating: 5, count: 200), to: channel)
        #expect(!channel.isActive && creator.messages.count == 1 && creator.ended == 1)
    }

    @Test func `eight code exchanges run at once, four per network, without taking room from handshakes`() throws {
        let wire = try Wire { $0.handshakesInFlight = 1 }
        let creator = Creator(wire)
        let addresses = [(4, "192.0.2.1"), (1, "192.0.2.9"), (4, "198.51.100.1"), (1, "203.0.113.1")]
        let channels = try addresses.flatMap { count, address in
            try (0..<count).map { _ in try creator.greet(from: address) }
        }
        #expect(channels.map(\.isActive) == [true, true, true, true, false, true, true, true, true, false])
        #expect(wire.responder.rejections == [.tooManyFromPrefix, .tooManyHandshakes])
        try wire.link()
        // The exchanges time out and free their slots.
        wire.loop.advanceTime(by: .seconds(6))
        #expect(try creator.greet(from: "203.0.113.1").isActive)
    }

    @Test func `greetings without a message take no place from a complete code exchange`() throws {
        for index in 0..<100 { #expect(try creator.greet([1, 2, 3], from: "192.0.2.\(index)").isActive) }
        let honest = try creator.greet(from: "192.0.2.200")
        #expect(creator.messages == [[1, 2, 3, 4]] && honest.isActive)
    }

    @Test func `the owner hears of a peer's hang-up only after the peer's message`() throws {
        creator.respond = { connection, _ in connection.answer([9], expecting: 3) }
        for message in [[], [1, 2, 3, 4]] as [[UInt8]] { _ = try? creator.greet(message).finish() }
        #expect(creator.ended == 1 && creator.messages.count == 1)
        wire.loop.run()
        #expect(wire.responder.transport.connectionCount == 0)
    }
}

/// Discovery of open codes over multicast, without sockets.
@Suite struct LanCodeTests {
    private let start: Int64 = 1_000_000

    private func interface(_ hosts: [UInt8], port: UInt16?) -> LanInterface {
        let addresses = hosts.map { LanInterface.Own(address: IPAddress(10, 0, 0, $0), prefixLength: 24, port: port) }
        return LanInterface(index: 7, name: "eth0", addresses: addresses)
    }

    private func responder(_ hosts: UInt8, port: UInt16? = 7_440) -> LanCodeResponder {
        var responder = LanCodeResponder()
        responder.setInterfaces([interface([hosts], port: port)])
        return responder
    }

    private func question(_ slot: UInt16, id: UInt64 = 5) -> [UInt8] {
        LanCodeDatagram(.question, number: slot, id: id).bytes
    }

    @Test func `a code datagram has twelve bytes, and other bytes are refused`() {
        let bytes = LanCodeDatagram(.answer, number: 0x1d10, id: 0x0102_0304_0506_0708).bytes
        #expect(bytes == [1, 4, 0x1d, 0x10, 1, 2, 3, 4, 5, 6, 7, 8] && LanCodeDatagram(bytes)?.bytes == bytes)
        for count in 0..<12 { #expect(LanCodeDatagram(Array(bytes.prefix(count))) == nil) }
        #expect(LanCodeDatagram(bytes + [0]) == nil)
        for start in [[2, 4], [1, 0], [1, 1], [1, 2], [1, 5], [1, 3, 0, 0]] as [[UInt8]] {
            #expect(LanCodeDatagram(start + bytes.dropFirst(start.count)) == nil)
        }
        // Members' discovery rejects the datagram.
        #expect(LanDatagram(bytes) == nil)
    }

    @Test func `a node answers only questions for its open code, each once`() {
        var responder = responder(1)
        func answer(_ bytes: [UInt8], from source: LanPlace = source(2)) -> LanCodeResponder.Answer? {
            responder.receive(bytes, from: source, now: start) { $0 == 7 }
        }
        let first = answer(question(7))
        #expect(first?.bytes == LanCodeDatagram(.answer, number: 7_440, id: 5).bytes)
        #expect(first?.source == source(2) && first?.place.address == IPAddress(10, 0, 0, 1))
        #expect(first?.bytes.count == question(7).count)
        #expect(answer(question(7)) == nil)
        #expect(answer(question(8, id: 6)) == nil)
        #expect(answer(first?.bytes ?? []) == nil)
        let far = LanPlace(interface: 7, address: IPAddress(10, 0, 1, 2), port: 1)
        #expect(answer(question(7, id: 7), from: far) == nil)
        let other = LanPlace(interface: 8, address: IPAddress(10, 0, 0, 2), port: 1)
        #expect(answer(question(7, id: 8), from: other) == nil)
        #expect(answer(question(7, id: 9)) != nil)
    }

    @Test func `a node without a listener answers nothing, and a flood gets the usual burst of answers`() {
        var silent = responder(1, port: nil)
        #expect(silent.receive(question(7), from: source(2), now: start) { _ in true } == nil)
        var responder = responder(1)
        let answers = (0..<1_000).filter { id in
            responder.receive(question(7, id: UInt64(id)), from: source(2), now: start) { _ in true } != nil
        }
        #expect(answers.count == Int(LanLimits.answerBurst))
    }

    /// A seeker that has asked: from its addresses, at a time.
    private func asked(_ hosts: UInt8...) throws -> (
        seeker: LanCodeSeeker, question: LanCodeDatagram, from: [LanPlace], now: Int64
    ) {
        var random = SplitMix64(state: 1)
        var seeker = LanCodeSeeker(slot: 7, interfaces: [interface(hosts, port: nil)], now: start)
        #expect(seeker.advance(now: start, using: &random).isEmpty)
        let now = try #require(seeker.nextDeadline)
        var question: LanCodeDatagram?
        var places: [LanPlace] = []
        for case .ask(let bytes, let place) in seeker.advance(now: now, using: &random) {
            question = LanCodeDatagram(bytes)
            places.append(place)
        }
        return (seeker, try #require(question), places, now)
    }

    @Test func `a seeker asks from each of its addresses and takes the only matching answer`() throws {
        var random = SplitMix64(state: 1)
        var (seeker, question, places, now) = try asked(2, 3)
        #expect(question.kind == .question && question.number == 7)
        #expect(places.map(\.address) == [IPAddress(10, 0, 0, 2), IPAddress(10, 0, 0, 3)])
        // Answers that match no question or come from another network are ignored.
        let answer = LanCodeDatagram(.answer, number: 7_440, id: question.id).bytes
        let stray = LanCodeDatagram(.answer, number: 7_440, id: question.id ^ 1).bytes
        let far = LanPlace(interface: 7, address: IPAddress(10, 0, 1, 2), port: 1)
        for (bytes, place) in [(stray, source(1)), (question.bytes, source(1)), (answer, far)] {
            #expect(seeker.receive(bytes, from: place, now: now).isEmpty)
        }
        for _ in 0..<2 { #expect(seeker.receive(answer, from: source(1), now: now).isEmpty) }
        #expect(seeker.advance(now: now, using: &random).isEmpty)
        now += LanCodeSeeker.gathering
        #expect(seeker.nextDeadline == now)
        #expect(seeker.advance(now: now, using: &random) == [.found(source(1, port: 7_440))])
        #expect(seeker.nextDeadline == nil && seeker.advance(now: now + 9_999, using: &random).isEmpty)
        #expect(seeker.receive(answer, from: source(1), now: now).isEmpty)
    }

    @Test func `two nodes' answers to one question make the search ambiguous`() throws {
        var (seeker, question, _, now) = try asked(2)
        let answer = LanCodeDatagram(.answer, number: 7_440, id: question.id).bytes
        #expect(seeker.receive(answer, from: source(1), now: now).isEmpty)
        #expect(seeker.receive(answer, from: source(3), now: now) == [.ambiguous])
        #expect(seeker.nextDeadline == nil)
    }

    @Test func `a search ends after its last unanswered question, or at once without an address`() throws {
        var random = SplitMix64(state: 2)
        var (seeker, question, _, _) = try asked(2)
        var ids: Set<UInt64> = [question.id]
        var actions: [LanCodeSeeker.Action] = []
        while let deadline = seeker.nextDeadline {
            actions = seeker.advance(now: deadline, using: &random)
            if case .ask(let bytes, _)? = actions.first, let sent = LanCodeDatagram(bytes) { ids.insert(sent.id) }
        }
        #expect(actions == [.nobody] && ids.count == LanCodeSeeker.questions.count)
        var alone = LanCodeSeeker(slot: 7, interfaces: [], now: start)
        #expect(alone.advance(now: alone.nextDeadline ?? 0, using: &random) == [.nobody])
    }
}
