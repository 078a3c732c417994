import Cryptography
import NIOCore
import NIOEmbedded
import TestSupport
import Testing

@testable import Transport

private let minute: Microseconds = 60_000_000
private let hour: Microseconds = 60 * minute

extension Rekeying {
    var rootBytes: [UInt8] { rootKey.withBytes { Array($0) } }

    /// For an optional, which a test cannot borrow.
    fileprivate mutating func takeRootBytes() -> [UInt8] { rootBytes }
}

extension StreamLink {
    /// Equal at both sides if and only if all secrets are. Empty before the link opens.
    var rootBytes: [UInt8] { rekeying?.takeRootBytes() ?? [] }
}

private func secretKey(_ byte: UInt8) -> SecretKey {
    guard let key = try? SecretKey(SecretBytes(copying: [UInt8](repeating: byte, count: 32))) else {
        preconditionFailure("32 equal bytes other than 0 and 255 are a key")
    }
    return key
}

/// The machine of ``Rekeying`` in each of its states.
@Suite struct RekeyingTests {
    enum State: CaseIterable {
        case dialerIdle, dialerAsked, dialerSwitching, listenerEarly, listenerReady, listenerSwitching
    }

    enum Event: CaseIterable {
        case rekey, shortRekey, longRekey, rekeyWithoutPoint, rekeyWithoutKey
        case answer, shortAnswer, longAnswer, answerWithoutPoint
    }

    /// A machine in a state, and an answer to it if it has asked.
    private static func machine(_ state: State) throws -> (Box, answer: [UInt8]) {
        let (dialer, listener) = (Box(.initiator), Box(.responder))
        guard state != .dialerIdle else { return (dialer, []) }
        guard state != .listenerEarly, state != .listenerReady else { return (listener, []) }
        let rekey = dialer.machine.ask(at: hour, ephemeral: secretKey(1))
        let answer = try #require(try listener.take(rekey, at: hour))
        if state == .dialerAsked { return (dialer, answer) }
        _ = try dialer.take(answer, at: hour)
        return (state == .dialerSwitching ? dialer : listener, answer)
    }

    /// Holds a noncopyable machine for the macros.
    final class Box {
        var machine: Rekeying
        var deadline: Microseconds { machine.deadline }

        init(_ role: Role, _ limits: RekeyLimits = RekeyLimits()) {
            machine = Rekeying(
                role, rootKey: SecretBytes(copying: [UInt8](repeating: 7, count: 32)), limits: limits, at: 0)
        }

        func isOverdue(at now: Microseconds) -> Bool { machine.isOverdue(at: now) }

        /// The answer; `nil` for new secrets without one.
        func take(_ frame: [UInt8], at now: Microseconds) throws(Rekeying.Violation) -> [UInt8]? {
            try machine.receive(frame, at: now, makeEphemeral: { secretKey(2) }).answer
        }
    }

    private static func frame(_ event: Event, answer: [UInt8]) -> [UInt8] {
        let rekey = [0xfe] + secretKey(1).publicKey.bytes + KeyEncapsulationSecret.generate().encapsulationKey
        let some = [0xff] + secretKey(1).publicKey.bytes + [UInt8](repeating: 1, count: 1_088)
        let answer = answer.isEmpty ? some : answer
        return switch event {
        case .rekey: rekey
        case .shortRekey: rekey.dropLast()
        case .longRekey: rekey + [0]
        case .rekeyWithoutPoint: [0xfe, 5] + rekey[2...]
        // Coefficients above 3,328.
        case .rekeyWithoutKey: rekey[..<34] + [UInt8](repeating: 0xff, count: 1_184)
        case .answer: answer
        case .shortAnswer: answer.dropLast()
        case .longAnswer: answer + [0]
        case .answerWithoutPoint: [0xff, 5] + answer[2...]
        }
    }

    /// The table of the page, section "New secrets".
    private static func expected(_ state: State, _ event: Event) -> String {
        switch (state, event) {
        case (.dialerAsked, .answer): "secrets"
        case (.dialerAsked, .shortAnswer), (.dialerAsked, .longAnswer): "badLength"
        case (.dialerAsked, .answerWithoutPoint): "badKey"
        case (.listenerReady, .rekey): "answer"
        case (.listenerReady, .rekeyWithoutPoint), (.listenerReady, .rekeyWithoutKey): "badKey"
        case (.listenerReady, .shortRekey), (.listenerReady, .longRekey): "badLength"
        case (.listenerEarly, .shortRekey), (.listenerEarly, .longRekey): "badLength"
        case (.listenerEarly, .rekey), (.listenerEarly, .rekeyWithoutPoint), (.listenerEarly, .rekeyWithoutKey):
            "tooEarly"
        default: "outOfTurn"
        }
    }

    @Test(arguments: State.allCases, Event.allCases)
    func `a frame in any state has the effect of the page, and a refused one has none`(state: State, event: Event)
        throws
    {
        let (box, answer) = try Self.machine(state)
        let frame = Self.frame(event, answer: answer)
        let now = state == .listenerEarly ? hour / 2 - 1 : hour
        let (root, deadline) = (box.machine.rootBytes, box.machine.deadline)
        let outcome: String
        do throws(Rekeying.Violation) {
            let answer = try box.take(frame, at: now)
            outcome = answer == nil ? "secrets" : "answer"
            if let answer { #expect(answer.count == 1 + 33 + 1_088 && answer[0] == 0xff) }
        } catch { outcome = "\(error)" }
        #expect(outcome == Self.expected(state, event))
        let isTaken = outcome == "secrets" || outcome == "answer"
        #expect((box.machine.rootBytes != root) == isTaken)
        if !isTaken { #expect(box.machine.deadline == deadline) }
    }

    @Test func `new secrets match the page's example`() throws {
        let vector = try VectorFile("Links")["new secrets"]
        func secret(_ field: String) throws -> SecretBytes { SecretBytes(copying: try vector.bytes(field)) }
        func key(_ field: String) throws -> SecretKey { try SecretKey(try secret(field)) }
        let near = try key("dialer's ephemeral")
        let far = try key("listener's ephemeral")
        var listener = Rekeying(.responder, rootKey: try secret("root key"), limits: RekeyLimits(), at: 0)
        let rekey = [0xfe] + near.publicKey.bytes + KeyEncapsulationSecret.generate().encapsulationKey
        let encapsulated = try secret("secret of ekem1")
        let renewal = try listener.receive(
            rekey, at: hour, makeEphemeral: { far.clone() },
            encapsulate: { _ in
                KeyEncapsulation(ciphertext: [UInt8](repeating: 0, count: 1_088), secret: encapsulated.clone())
            })
        let frame = try vector.bytes("frame")
        var ours = TransportState(renewal.secrets)
        let first = try ours.seal(frame)
        #expect(first == (try vector.bytes("first from the listener")))
        let dialers = LinkSecrets(
            rootKey: try secret("root key"), curve: near.sharedSecret(with: far.publicKey), encapsulated: encapsulated,
            role: .initiator)
        var theirs = TransportState(dialers)
        let answer = try theirs.seal(frame)
        #expect(answer == (try vector.bytes("first from the dialer")))
        let (root, same) = (listener.rootBytes, dialers.rootKey.withBytes { Array($0) })
        #expect(try vector.bytes("new root key") == root && root == same)
    }

    @Test func `a dialer asks after an hour or a number of frames, and either side waits so long`() throws {
        var limits = RekeyLimits()
        limits.frameCount = 10
        let (dialer, listener) = (Box(.initiator, limits), Box(.responder, limits))
        func deadlines() -> [Microseconds] { [dialer.deadline / minute, listener.deadline / minute] }
        #expect(deadlines() == [60, 70])
        #expect(!dialer.isOverdue(at: 70 * minute - 1) && dialer.isOverdue(at: 70 * minute))
        for _ in 0..<10 { dialer.machine.countFrame() }
        #expect(dialer.deadline == 0)
        let rekey = dialer.machine.ask(at: minute, ephemeral: secretKey(1))
        #expect(!dialer.isOverdue(at: 11 * minute - 1) && dialer.isOverdue(at: 11 * minute))
        // Nothing completes an exchange without an answer.
        dialer.machine.completed()
        #expect(deadlines() == [11, 70])
        for _ in 0..<5 { listener.machine.countFrame() }
        let answer = try listener.take(rekey, at: 2 * minute)
        _ = try dialer.take(try #require(answer), at: 3 * minute)
        #expect(deadlines() == [11, 12])
        for side in [dialer, listener] { side.machine.completed() }
        #expect(deadlines() == [63, 72])
    }
}

/// The exchange over TCP: two transports on an embedded loop.
@Suite struct StreamRekeyTests {
    private let wire: Wire
    private var near: EmbeddedChannel { wire.near }
    private var far: EmbeddedChannel { wire.far }

    init() throws { wire = try Wire.linked() }

    private func roots(_ wire: Wire) -> [[UInt8]] {
        [wire.dialer, wire.responder].compactMap { side in
            side.transport.streamLinks.values.lazy.map(\.rootBytes).first { !$0.isEmpty }
        }
    }

    /// A frame each way every minute.
    private func pass(minutes: Int) throws {
        for _ in 0..<minutes {
            wire.loop.advanceTime(by: .minutes(1))
            for side in [wire.dialer, wire.responder] { try wire.say([[1]], from: side) }
            try wire.pump()
        }
    }

    @Test func `a link has new secrets each hour, which both sides share`() throws {
        var seen: Set<[UInt8]> = []
        for round in 0..<4 {
            let roots = roots(wire)
            #expect(roots[0] == roots[1] && seen.insert(roots[0]).inserted, "hour \(round)")
            try pass(minutes: 58)
            #expect(self.roots(wire) == roots)
            try pass(minutes: 2)
        }
        #expect(wire.dialer.frames.count == 4 * 60 && wire.responder.frames.count == 4 * 60)
        #expect(wire.dialer.closed.isEmpty && wire.responder.closed.isEmpty)
    }

    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `frames in flight in both directions arrive in order across many exchanges`(seed: UInt64) throws {
        let wire = try Wire.linked { $0.rekey.frameCount = 40 }
        var random = SplitMix64(state: seed)
        var sent = [0, 0]
        var seen: Set<[UInt8]> = []
        for _ in 0..<1_500 {
            let which = Int.random(in: 0...1, using: &random)
            let side = which == 0 ? wire.dialer : wire.responder
            let (from, to) = which == 0 ? (wire.near, wire.far) : (wire.far, wire.near)
            if Int.random(in: 0..<3, using: &random) > 0 {
                try side.links[0].send([UInt8(sent[which] >> 8), UInt8(sent[which] & 255)])
                sent[which] += 1
                continue
            }
            side.links[0].flush()
            let bytes = try wire.written(from)
            let piece = Int.random(in: 1...2_000, using: &random)
            for start in stride(from: 0, to: bytes.count, by: piece) {
                try to.writeInbound(ByteBuffer(bytes: bytes[start..<min(bytes.count, start + piece)]))
            }
            seen.insert(roots(wire)[0])
        }
        for _ in 0..<2 {
            for side in [wire.dialer, wire.responder] { side.links[0].flush() }
            try wire.pump()
        }
        func frames(_ count: Int) -> [[UInt8]] { (0..<count).map { [UInt8($0 >> 8), UInt8($0 & 255)] } }
        #expect(wire.responder.frames == frames(sent[0]) && wire.dialer.frames == frames(sent[1]))
        #expect(wire.dialer.closed.isEmpty && wire.responder.closed.isEmpty)
        let roots = roots(wire)
        #expect(roots[0] == roots[1] && seen.count > 5)
    }

    @Test func `a link ends if the answer does not come in ten minutes, and if nobody asks in 70`() throws {
        // The listener's frames arrive, but not its answer.
        wire.loop.advanceTime(by: .minutes(61))
        try wire.say([[1]])
        try wire.say([[2]], from: wire.responder)
        try wire.send(try wire.written(far), to: near)
        #expect(wire.dialer.frames == [[2]] && wire.dialer.closed.isEmpty)
        wire.loop.advanceTime(by: .minutes(10))
        for side in [wire.dialer, wire.responder] {
            #expect(throws: LinkSendError.closed) { try wire.say([[3]], from: side) }
            #expect(side.closed == [.rekeyOverdue])
        }
    }

    @Test(arguments: [LinkCarrier.tcp, .udp], [0xfe, 0xff] as [UInt8])
    func `a frame of an exchange at the wrong time or side ends the link`(carrier: LinkCarrier, kind: UInt8)
        async throws
    {
        for isFromDialer in [true, false] {
            let net = try await SocketPair(carrier)
            try await net.dial()
            try await net.until { _, far in !far.links.isEmpty }
            let (sender, receiver) = isFromDialer ? (net.near, net.far) : (net.far, net.near)
            // The frame is the owner's: the transport does not look at frames to be sent.
            try await net.until { near, far in
                !near.closed.isEmpty && !far.closed.isEmpty
            } after: { near, far in
                let link = (isFromDialer ? near : far).links[0]
                try? link.send([kind] + [UInt8](repeating: 2, count: kind == 0xfe ? 1_217 : 1_121))
                link.flush()
            }
            #expect(receiver.closed == [.protocolViolation] && receiver.frames.isEmpty)
            #expect(carrier == .tcp || sender.closed == [.closedByPeer])
            try await net.end()
        }
    }

    @Test func `a link that closes drops the frames of an exchange`() throws {
        wire.loop.advanceTime(by: .minutes(61))
        try wire.say([[1]])
        let bytes = try wire.written(near)
        wire.responder.links[0].pauseReading()
        try wire.send(bytes, to: far)
        wire.responder.links[0].close(.requested)
        wire.loop.run()
        #expect(try wire.responder.frames == [[1]] && wire.written(far).isEmpty)
    }
}
