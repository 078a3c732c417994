import Adversary
import Control
import FoundationEssentials
import Glibc
import TestSupport

/// Steps of a script on a node.
extension NodeProcess {
    /// 200 bytes, as in the baselines.
    static let text = String(String(repeating: "mayfly ", count: 29).prefix(200))
    static let samples = 300
    /// Messages in flight, and per request.
    private static let inFlight = 256
    static let batch = 32

    /// Makes a conversation with these nodes, without an agreement: its messages stay in memory. Returns its id.
    func converse(_ others: [NodeProcess], _ name: String) throws -> String {
        let conversation = try text("conversation", of: "conversation.create", ["name": .string(name)])
        for other in others { try other.join(try slug(of: conversation)) }
        for node in [self] + others { try node.waitFor("peerOnline", conversation) }
        return conversation
    }

    /// Agrees on terms under which all nodes store messages.
    func agree(_ others: [NodeProcess], _ conversation: String, terms: [String: JSONValue] = [:]) throws {
        let proposal = terms.merging(["conversation": .string(conversation), "lifetime": "1d"]) { first, _ in first }
        _ = try client.call("lifetime.propose", .object(proposal))
        for other in others {
            try other.waitFor("lifetimeProposed", conversation)
            _ = try other.client.call("lifetime.accept", ["conversation": .string(conversation)])
        }
        for node in [self] + others { try node.waitFor("lifetimeAgreed", conversation) }
    }

    func agreed(_ others: [NodeProcess], _ name: String) throws -> String {
        let conversation = try converse(others, name)
        try agree(others, conversation)
        return conversation
    }

    private func waitFor(_ event: String, _ conversation: String) throws {
        let watcher = try watch(event, conversation)
        guard case .event = try watcher.nextEvent(until: .now + .seconds(60)) else {
            throw Failure("\(event) did not happen in 60 s")
        }
    }

    /// A client that gets these events of a conversation.
    /// - Parameter isFromStart: also those that have happened.
    func watch(_ event: String, _ conversation: String, isFromStart: Bool = true) throws -> ControlClient {
        let watcher = try ControlClient(home: home)
        var params: [String: JSONValue] = ["conversation": .string(conversation), "events": [.string(event)]]
        if isFromStart { params["since"] = 0 }
        _ = try watcher.call("subscribe", .object(params))
        return watcher
    }

    private static func parameters(_ conversation: String) -> JSONValue {
        ["conversation": .string(conversation), "text": .string(text), "wait": "delivered"]
    }

    private static func line(_ method: String, _ params: JSONValue) -> [UInt8] {
        ControlRequest(id: .integer(1), method: method, params: params).jsonValue.utf8 + [0x0a]
    }

    static func send(_ conversation: String) -> [UInt8] { line("send", parameters(conversation)) }

    static func sendBatch(_ conversation: String) -> [UInt8] {
        let texts = [JSONValue](repeating: .string(text), count: batch)
        return line("send", ["conversation": .string(conversation), "texts": .array(texts), "wait": "delivered"])
    }

    static var create: [UInt8] { line("conversation.create", [:]) }

    func createInboxes(_ count: Int) throws { _ = try Pipeline(home: home).run([Self.create], count: count) }

    /// A connection for requests of ``sendBatch(_:)``.
    func batches() throws -> Pipeline { try Pipeline(home: home, connections: 1, window: Self.inFlight / Self.batch) }

    func fill(_ conversation: String, count: Int) throws {
        _ = try batches().run([Self.sendBatch(conversation)], count: (count + Self.batch - 1) / Self.batch)
    }

    func send(_ conversation: String) throws {
        let answer = try client.call("send", Self.parameters(conversation))
        guard answer["state"] == "delivered" else { throw Failure("not delivered: \(answer.text)") }
    }

    /// From the request to the delivery, one message after the other. Microseconds each.
    func latencies(_ conversation: String) throws -> [Double] {
        for _ in 0..<20 { try send(conversation) }
        return try (0..<Self.samples).map { _ in try microseconds { try send(conversation) } }
    }
}

extension Site {
    func status(_ node: NodeProcess) throws -> Double {
        let command = [mayfly, "status", "--home", node.home, "--json"]
        return try (0..<20).map { _ in try microseconds { _ = try Child.run(command) } / 1_000 }.median
    }
}

/// Thousands of inboxes: memory asleep and awake, wake time and start time.
struct InboxesRun {
    let site: Site
    private var table: Table { site.table }
    private static let count = 10_000

    func measure() throws {
        let awake = try site.node("awake", ["--capacity", "2000"])
        let empty = try awake.memory()
        // One after the other at full speed, so that the pool of one is empty each time.
        let rate = try Pipeline(home: awake.home).run([NodeProcess.create], count: 1_000)
        table.add(.identityFresh, 1_000_000 / rate)
        table.add(.memoryAwake, (try awake.memory() - empty) * 1_024 / 1_000)
        try awake.stop()

        let node = try site.node("many")
        let before = try node.memory()
        try node.createInboxes(1_000)
        try table.addMedian(.rebalanceFew, 11) { _ = try node.client.call("inbox.rebalance", [:]) }
        try node.createInboxes(Self.count - 1_000)
        try table.addMedian(.rebalanceMany, 11) { _ = try node.client.call("inbox.rebalance", [:]) }
        table.add(.memoryAsleep, (try node.memory() - before) * 1_024 / Double(Self.count))
        guard case .array(let listed)? = try node.client.call("inbox.list", [:])["inboxes"] else {
            throw Failure("inbox.list names no inboxes")
        }
        let sleeping = listed.filter { $0["state"] == "sleeping" }.prefix(300).compactMap { $0["inbox"] }
        let waking = try sleeping.map { inbox in
            try microseconds { _ = try node.client.call("inbox.wake", ["inbox": inbox]) }
        }
        table.add(.wakeMedian, waking.percentile(0.5))
        table.add(.wakeTail, waking.percentile(0.99))
        try node.stop()
        let again = try site.node("many", isNew: false)
        table.add(.startUpMany, again.startUp)
        table.add(.memoryMany, try again.memory())
        try again.stop()
    }

    /// Cost of a conversation beside thousands of unused ones: messages and `status`. `make allocations` measures
    /// the tick.
    func measureNeighbours() throws {
        let (ann, bob) = (try site.node("neighbour-a"), try site.node("neighbour-b"))
        let conversation = try ann.agreed([bob], "used")
        let (pipeline, request) = (try Pipeline(home: ann.home), NodeProcess.send(conversation))
        func measure(_ rate: Figure, _ median: Figure) throws {
            // New inboxes beyond the capacity go to sleep meanwhile, and the first requests run cold code.
            sleep(5)
            _ = try pipeline.run([request], count: 20_000)
            table.add(rate, try pipeline.run([request], count: 60_000))
            table.add(median, try ann.latencies(conversation).percentile(0.5))
        }
        try measure(.rateAlone, .medianAlone)
        for node in [ann, bob] { try node.createInboxes(Self.count) }
        try measure(.rateNeighbours, .medianNeighbours)
        table.add(.statusNeighbours, try site.status(ann))
        try ann.stop()
        try bob.stop()
    }
}
