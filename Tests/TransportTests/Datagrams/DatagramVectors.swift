import Cryptography
import Foundation
import TestSupport
import Testing

@testable import Transport

/// Compares the page DatagramLinks with the code. `Tests/Vectors/vectors.py` makes the examples.
@Suite struct DatagramVectors {
    private let examples: VectorFile
    private let ann: IdentityKey
    private let bob: IdentityKey
    private let token: [UInt8]
    private let here = DatagramAddress(v4: 0x7f00_0001, port: 1)
    private let there = DatagramAddress(v4: 0x7f00_0001, port: 2)
    private let limits = DatagramLimits()

    init() throws {
        examples = try VectorFile("DatagramLinks")
        let inputs = try VectorFile("SignedValues")["inputs"]
        ann = IdentityKey(try SecretKey(SecretBytes(copying: try inputs.bytes("ann"))))
        bob = IdentityKey(try SecretKey(SecretBytes(copying: try inputs.bytes("bob"))))
        token = try inputs.bytes("token")
    }

    /// - Parameter ephemeral: `nil` if no handshake may begin.
    private func source(_ ephemeral: [UInt8]? = nil, _ encapsulation: KeyEncapsulationSource = KeyEncapsulationSource())
        -> DatagramSource
    {
        DatagramSource(
            randomBytes: { [UInt8](repeating: 7, count: $0) },
            makeEphemeral: {
                guard let ephemeral, let key = try? SecretKey(SecretBytes(copying: ephemeral)) else {
                    preconditionFailure("no handshake, or no key on the page")
                }
                return key
            }, encapsulation: encapsulation)
    }

    private func act(_ datagram: [UInt8]) throws -> [UInt8] {
        switch try #require(DatagramPacket(datagram)) {
        case .dial(_, _, _, let half): return half.bytes
        case .answer(_, _, let act), .finish(_, let act): return act
        default: throw Vector.Failure(description: "no act")
        }
    }

    /// Runs the handshake of the page, compares each datagram and returns both sides' links.
    private func links() throws -> (dialer: DatagramLink, listener: DatagramLink) {
        let vector = try examples["datagram handshake"]
        let dialerID = try vector.bytes("dialer's id").bigEndian(at: 0)
        let listenerID = try vector.bytes("listener's id").bigEndian(at: 0)
        #expect(DatagramPacket.prologue(token: token) == (try vector.bytes("prologue")))
        let encapsulation = try KeyEncapsulationSource(vector)
        let dialing = try Dialing(
            DatagramDial(address: there, token: token, identity: ann, remote: bob.publicKey, route: 1), id: dialerID,
            source: source(try vector.bytes("dialer's ephemeral"), encapsulation), limits: limits, at: 0)
        let halves = [try #require(dialing.poll(at: 0)).bytes, try #require(dialing.poll(at: 0)).bytes]
        #expect(halves == [try vector.bytes("first half"), try vector.bytes("second half")])
        #expect(dialing.poll(at: 0) == nil)
        let answering = try ResponderHandshake(
            ResponderHandshake.Name(address: here, dialer: dialerID), id: listenerID, token: token,
            route: RouteMatch(identity: bob, route: 1, remote: ann.publicKey), actOne: try halves.flatMap(act),
            source: source(try vector.bytes("listener's ephemeral"), encapsulation), limits: limits, at: 0)
        #expect(answering.firstAnswer.bytes == (try vector.bytes("answer")))
        let rejection = dialing.receiveAnswer(
            try act(answering.firstAnswer.bytes), responder: listenerID, from: there, source: source(), at: 0)
        #expect(rejection == nil)
        let finish = try #require(dialing.poll(at: 0)).bytes
        #expect(finish == (try vector.bytes("finish")))
        let outcome = answering.receiveFinish(try act(finish), source: source(), at: 0)
        guard case .link(let listener) = outcome else { throw Vector.Failure(description: "no link: \(outcome)") }
        let ping = try examples["sealed packets"].bytes("ping")
        let dialer = dialing.receiveSealed(ping, epoch: 0, number: 0, from: there, at: 0)
        return (try #require(dialer), listener)
    }

    @Test func `a datagram handshake and its keys match the page's example`() throws {
        let vector = try examples["datagram handshake"]
        let (dialer, listener) = try links()
        #expect(dialer.peer.handshakeHash == (try vector.bytes("handshake hash")))
        #expect(listener.peer.handshakeHash == (try vector.bytes("handshake hash")))
        for (name, link, remote) in [
            ("dialer's key", dialer, "listener's id"), ("listener's key", listener, "dialer's id"),
        ] {
            let header: [UInt8] = [0x0d, 0x15, 0] + (try vector.bytes(remote)) + [UInt8](repeating: 0, count: 8)
            var expected = header + [0x01]
            PacketCipher(
                key: SecretBytes(copying: try vector.bytes(name)), chainingKey: SecretBytes(byteCount: 32) { _ in }
            ).seal(&expected, headerByteCount: header.count, number: 0)
            var packet = header + [0x01]
            link.keys.seal(&packet, number: 0)
            #expect(packet == expected)
        }
    }

    @Test func `sealed packets match the page's example`() throws {
        let vector = try examples["sealed packets"]
        let (dialer, listener) = try links()
        let number = UInt64(try vector.number("number"))

        var frames: [UInt8] = []
        let ranges: [ClosedRange<UInt64>] = [5...9, 0...3]
        DatagramFrame.append(DatagramFrame.Acknowledgement(ranges: ranges, delay: 250), to: &frames)
        var stream = SendStream(credit: 1_000)
        stream.write([0x20, 0x07])
        let piece = stream.next(100)
        stream.append(try #require(piece), to: &frames)
        #expect(frames == (try vector.bytes("frames")))

        let header = DatagramPacket.sealed(epoch: 0, receiver: dialer.remoteID, number: number).bytes
        var packet = header + frames
        dialer.keys.seal(&packet, number: number)
        #expect(packet == (try vector.bytes("packet")))
        listener.nextNumber = 10
        #expect(listener.receive(packet, epoch: 0, number: number, from: here, at: 0))
        #expect(listener.state == .open && listener.read(at: 0) == [0x20, 0x07])
        #expect(!listener.receive(packet, epoch: 0, number: number, from: here, at: 0))

        dialer.nextNumber = number + 1
        dialer.abort(.requested, at: 0)
        let close = try #require(dialer.poll(at: 0)).bytes
        #expect(close == (try vector.bytes("close")))
        #expect(listener.receive(close, epoch: 0, number: number + 1, from: here, at: 0) && listener.isGone)
    }

    @Test func `the rotation of a key matches the page's example`() throws {
        let (dialer, listener) = try links()
        var packet = DatagramPacket.sealed(epoch: 1, receiver: dialer.remoteID, number: 4_096).bytes + [0x01]
        for number in [0, 4_095] as [UInt64] { dialer.keys.rotate(at: number, acknowledged: 0) }
        #expect(dialer.keys.epoch == 0)
        dialer.keys.rotate(at: 4_096, acknowledged: 0)
        #expect(dialer.keys.epoch == 1)
        dialer.keys.seal(&packet, number: 4_096)
        #expect(packet == (try examples["sealed packets"].bytes("rotated")))
        #expect(listener.receive(packet, epoch: 1, number: 4_096, from: here, at: 0))
        #expect(listener.keys.receivingEpoch == 1 && listener.keys.epoch == 0)
    }

    @Test(
        arguments: [
            (LinkCloseReason.requested, 0), (.closedByPeer, 0), (.unacknowledged, 0), (.duplicate, 1),
            (.protocolViolation, 2), (.shutDown, 3), (.silent, 4), (.rekeyOverdue, 5), (.outboundOverflow, 6),
        ] as [(LinkCloseReason, UInt8)]) func `close reasons have the numbers of the page`(
            _ reason: LinkCloseReason, _ code: UInt8
        ) throws
    {
        #expect(reason.code == code)
        let table =
            try Specification.page("DatagramLinks").components(separatedBy: "| reason | the sender closes because |")
            .last ?? ""
        #expect(table.prefix { $0 != "#" }.contains("\n| \(code) | "))
    }
}
