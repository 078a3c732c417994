import Control
import Glibc
import NIOCore
import NIOPosix
import Synchronization
import Testing

private final class Subscribers: Sendable { let connections = Mutex<[ControlSession]>([]) }

@Suite(.timeLimit(.minutes(30))) struct ControlStreamTests {
    @Test func `two subscribers get every event in order`() async throws {
        let subscribers = Subscribers()
        try await ControlNode.serving(subscribers.handler) { node in
            let first = try node.client()
            let second = try node.client()
            _ = try first.call("subscribe")
            _ = try second.call("subscribe")
            let publisher = try node.client()
            for text in ["a", "b", "c"] { _ = try publisher.call("publish", ["text": .string(text)]) }
            for client in [first, second] {
                let texts = try (0..<3).map { _ in try client.nextText() }
                #expect(texts == ["a", "b", "c"])
                #expect(try client.nextEvent(until: .now) == .timedOut)
            }
        }
    }

    @Test func `the wait for an event ends when the output's reader goes`() async throws {
        let subscribers = Subscribers()
        try await ControlNode.serving(subscribers.handler) { node in
            let client = try node.client()
            _ = try client.call("subscribe")
            var ends: [Int32] = [0, 0]
            try #require(pipe(&ends) == 0)
            #expect(try client.nextEvent(until: .now, for: ends[1]) == .timedOut)
            _ = try client.call("publish", ["text": "mine"])
            guard case .event = try client.nextEvent(until: nil, for: ends[1]) else {
                Issue.record("the event is not told")
                return
            }
            close(ends[0])
            #expect(try client.nextEvent(until: nil, for: ends[1]) == .unread)
            close(ends[1])
        }
    }

    @Test func `a wait longer than poll allows is split into parts`() {
        #expect(ControlClient.pollTime(left: .seconds(30 * 86_400)) == .max)
        #expect(ControlClient.pollTime(left: .seconds(3_000_000_000)) == .max)
        #expect(ControlClient.pollTime(left: .microseconds(1_001)) == 2)
        #expect(ControlClient.pollTime(left: .zero) == 0 && ControlClient.pollTime(left: .seconds(-1)) == 0)
    }

    @Test func `an event before an awaited answer is kept`() async throws {
        let subscribers = Subscribers()
        try await ControlNode.serving(subscribers.handler) { node in
            let client = try node.client()
            _ = try client.call("subscribe")
            #expect(try client.call("publish", ["text": "mine"]) == ["queued"])
            #expect(try client.nextText() == "mine")
        }
    }

    @Test func `a subscriber that does not read is dropped, told so, and can subscribe again`() async throws {
        let subscribers = Subscribers()
        try await ControlNode.serving(subscribers.handler) { node in
            let slow = try node.client()
            _ = try slow.call("subscribe")
            let publisher = try node.client()
            let chunk = JSONValue.string(String(repeating: "x", count: 100_000))
            var published = 0
            while try publisher.call("publish", ["text": chunk]) == ["queued"] {
                published += 1
                try #require(published < 1000, "the backlog has no bound")
            }
            var received = 0
            var step = try slow.nextEvent(until: .now + .seconds(20))
            while case .event = step {
                received += 1
                step = try slow.nextEvent(until: .now + .seconds(20))
            }
            guard case .dropped(let error) = step else {
                Issue.record("it was not told: \(step)")
                return
            }
            #expect(error.message.contains("too slowly"))
            #expect(received == published)
            subscribers.connections.withLock { $0.removeAll() }
            _ = try slow.call("subscribe")
            _ = try publisher.call("publish", ["text": "again"])
            #expect(try slow.nextText() == "again")
        }
    }

    @Test func `a connection has one subscription, and each subscription ends once`() async throws {
        let ended = Mutex<[Int]>([])
        let count = Mutex(0)
        let handler: ControlHandler = { request, connection in
            switch request.method {
            case "subscribe":
                let number = count.withLock { count in
                    count += 1
                    return count
                }
                connection.startStream { ended.withLock { $0.append(number) } }
            case "unsubscribe": connection.stopStream()
            case "flood":
                let event: JSONValue = ["text": .string(String(repeating: "x", count: 100_000))]
                while connection.notify(event) { continue }
                #expect(!connection.notify(event))
            default: break
            }
            return connection.eventLoop.makeSucceededFuture(.array(ended.withLock { $0 }.map { .integer(Int64($0)) }))
        }
        try await ControlNode.serving(handler) { node in
            let client = try node.client()
            #expect(try client.call("subscribe") == [])
            #expect(try client.call("subscribe") == [1])
            #expect(try client.call("unsubscribe") == [1, 2])
            #expect(try client.call("unsubscribe") == [1, 2])
            #expect(try client.call("subscribe") == [1, 2])
            #expect(try client.call("flood") == [1, 2, 3])
            #expect(try client.call("subscribe") == [1, 2, 3])
            // Called on the loop, in the same turn.
            let atTheEnd = node.eventLoop.flatSubmit { node.server.close().map { ended.withLock { $0 } } }
            #expect(try atTheEnd.wait() == [1, 2, 3, 4])
            #expect(failure { try client.call("m") }?.kind == .noNode)
        }
    }

    @Test func `a subscription continues after the end of input, and its end disconnects`() async throws {
        let subscribers = Subscribers()
        try await ControlNode.serving(subscribers.handler) { node in
            let raw = try node.rawClient()
            raw.send(#"{"jsonrpc":"2.0","id":1,"method":"subscribe"}"# + "\n")
            raw.endInput()
            #expect(try raw.line()?["id"] == 1)
            let publisher = try node.client()
            _ = try publisher.call("publish", ["text": "late"])
            #expect(try raw.line()?["params"]?["text"] == "late")
            let chunk = JSONValue.string(String(repeating: "x", count: 100_000))
            while try publisher.call("publish", ["text": chunk]) == ["queued"] { continue }
            var last: JSONValue?
            while let line = try raw.line() { last = line }
            #expect(last?["method"] == "subscription.dropped")
        }
    }

    @Test func `a close handler runs at once when its client disconnects, unless it was removed`() async throws {
        let told = Mutex<[String]>([])
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let arrived = loop.makePromise(of: (any EventLoop).self)
        let handler: ControlHandler = { _, connection in
            let promise = connection.eventLoop.makePromise(of: JSONValue.self)
            _ = connection.onClose {
                told.withLock { $0.append("first") }
                // Like a request that has progressed and now waits for something else.
                let number = connection.onClose { told.withLock { $0.append("second") } }
                connection.removeOnClose(number)
                promise.fail(ControlError(.failed, "gone"))
            }
            let taken = connection.onClose { told.withLock { $0.append("taken back") } }
            connection.removeOnClose(taken)
            arrived.succeed(connection.eventLoop)
            return promise.futureResult
        }
        try await ControlNode.serving(handler) { node in
            var raw: RawClient? = try node.rawClient()
            raw?.send(#"{"jsonrpc":"2.0","id":1,"method":"wait"}"# + "\n")
            let served = try arrived.futureResult.wait()
            raw = nil
            while told.withLock({ $0.isEmpty }) { try served.submit {}.wait() }
            #expect(told.withLock { $0 } == ["first", "second"])
        }
    }
}

extension Subscribers {
    fileprivate var handler: ControlHandler {
        { [self] request, connection in
            switch request.method {
            case "subscribe":
                connection.startStream()
                connections.withLock { $0.append(connection) }
                return connection.eventLoop.makeSucceededFuture(["cursor": 0])
            case "publish":
                let event: JSONValue = ["cursor": 1, "text": request.params["text"] ?? .null]
                let outcomes = connections.withLock { $0 }.map { $0.notify(event) }
                return connection.eventLoop.makeSucceededFuture(
                    .array(outcomes.map { .string($0 ? "queued" : "dropped") }))
            default: throw ControlError.unknownMethod(request.method)
            }
        }
    }
}

extension ControlClient {
    fileprivate func nextText() throws -> JSONValue? {
        guard case .event(let event) = try nextEvent(until: .now + .seconds(20)) else { return nil }
        return event["text"]
    }
}
