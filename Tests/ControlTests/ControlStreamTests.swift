import Control
import NIOCore
import NIOPosix
import Synchronization
import Testing

/// Subscribes connections and publishes to all of them.
private final class Subscribers: Sendable {
    let connections = Mutex<[ControlConnection]>([])
}

@Suite(.timeLimit(.minutes(1))) struct ControlStreamTests {
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

    @Test func `events that come before an awaited answer are kept`() async throws {
        let subscribers = Subscribers()
        try await ControlNode.serving(subscribers.handler) { node in
            let client = try node.client()
            _ = try client.call("subscribe")
            #expect(try client.call("publish", ["text": "mine"]) == ["queued"])
            #expect(try client.nextText() == "mine")
        }
    }

    @Test func `a subscriber that does not read is dropped, told so, and can come back`() async throws {
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

    @Test func `a stream goes on after the end of input`() async throws {
        let subscribers = Subscribers()
        try await ControlNode.serving(subscribers.handler) { node in
            let raw = try node.rawClient()
            raw.send(#"{"jsonrpc":"2.0","id":1,"method":"subscribe"}"# + "\n")
            raw.endInput()
            #expect(try raw.line()?["id"] == 1)
            _ = try node.client().call("publish", ["text": "late"])
            #expect(try raw.line()?["params"]?["text"] == "late")
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
                    .array(outcomes.map { .string($0 == .queued ? "queued" : "dropped") })
                )
            default: throw ControlError.unknownMethod(request.method)
            }
        }
    }
}

extension ControlClient {
    /// The text of the next event.
    fileprivate func nextText() throws -> JSONValue? {
        guard case .event(let event) = try nextEvent(until: .now + .seconds(20)) else { return nil }
        return event["text"]
    }
}
