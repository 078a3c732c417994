import Foundation
import Glibc
import TestSupport
import Testing

@Suite("Strangers on the port", .script) struct NetworkTests {
    private func connect(to node: TestNode) throws -> Int32 {
        try LoopbackSocket.connected(to: node.host, port: node.port)
    }

    private func push(_ bytes: [UInt8], to descriptor: Int32) -> Int {
        send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
    }

    private func isClosed(_ descriptor: Int32, within milliseconds: Int32) -> Bool {
        var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&polled, 1, milliseconds) > 0 else { return false }
        var chunk = [UInt8](repeating: 0, count: 64)
        return recv(descriptor, &chunk, chunk.count, Int32(MSG_DONTWAIT)) <= 0
    }

    @Test func `Garbage, slow bytes, endless bytes and silence on the port get no answer and disturb no chat`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            var open: [Int32] = []
            defer { for descriptor in open { close(descriptor) } }
            var generator = SeededNumbers("garbage on the port")
            for length in [1, 17, 66, 67, 500, 5_000] {
                let descriptor = try connect(to: bob)
                open.append(descriptor)
                _ = push((0..<length).map { _ in UInt8.random(in: 0...255, using: &generator) }, to: descriptor)
                if length >= 67 { #expect(isClosed(descriptor, within: 90_000), "\(length) bytes") }
            }
            for text in [
                "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                "SSH-2.0-OpenSSH_9.2\r\n\r\n" + String(repeating: " ", count: 100),
            ] {
                let descriptor = try connect(to: bob)
                open.append(descriptor)
                _ = push(Array(text.utf8), to: descriptor)
            }
            try say("among garbage", ann)
            // A byte at a time while the chat goes on, and silent connections.
            let slow = try connect(to: bob)
            open.append(slow)
            for _ in 0..<40 { open.append(try connect(to: bob)) }
            for index in 0..<5 {
                _ = push([UInt8(index)], to: slow)
                try say("among slow ones \(index)", index % 2 == 0 ? ann : bob)
            }
            let endless = try connect(to: bob)
            open.append(endless)
            let block = [UInt8](repeating: 0x41, count: 65_536)
            var isGone = false
            for _ in 0..<2_000 where !isGone {
                if push(block, to: endless) < 0 { isGone = errno != EAGAIN || isClosed(endless, within: 100) }
            }
            #expect(isGone, "an endless stream is cut off")
            try say("among endless ones", ann)
            #expect(isClosed(slow, within: 90_000), "who does not finish a handshake is closed")
            // A node that was away gets through, too.
            let cursor = try bob.cursor()
            try ann.restart()
            try bob.wait("peerOnline", after: cursor)
            try ann.wait("peerOnline")
            try say("still here", ann)
            #expect(try bob.texts().count == 8)
            // A link counts until the transport has closed it.
            try eventually("one link") { try bob.ok("status")["links"].integer == 1 }
        }
    }
}
