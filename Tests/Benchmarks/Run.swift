import Adversary
import Control
import FoundationEssentials
import Glibc
import TestSupport

/// One run: two fresh nodes on loopback, driven like a script, and the machine's own figures.
struct Run {
    let mayfly: String
    let directory: String
    /// 200 bytes, as in the baselines.
    static let text = String(String(repeating: "mayfly ", count: 29).prefix(200))
    private static let samples = 300
    /// Messages in flight, and per request.
    private static let inFlight = 256
    private static let batch = 32

    /// - Parameter messagesOnly: Measures messages and explosions only.
    func measure(into table: inout Table, messagesOnly: Bool) throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        table.add(.rawSynchronize, try Machine.synchronize(in: directory, count: Self.samples).median)

        try NodeProcess(mayfly: mayfly, home: "\(directory)/a", isNew: true).stop()
        let ann = try NodeProcess(mayfly: mayfly, home: "\(directory)/a", isNew: false)
        let bob = try NodeProcess(mayfly: mayfly, home: "\(directory)/b", isNew: true)
        table.add(.startUp, ann.startUp)
        try measureIdle(ann, into: &table)

        let first = try converse(ann, [bob], "first")
        let (ephemeralMedian, ephemeralTail) = try latency(ann, first)
        table.add(.ephemeralMedian, ephemeralMedian)
        table.add(.ephemeralTail, ephemeralTail)
        table.add(.ephemeralRate, try ephemeralRate(ann, bob, first))
        try agree(ann, [bob], first)
        let (durableMedian, durableTail) = try latency(ann, first)
        table.add(.durableMedian, durableMedian)
        table.add(.durableTail, durableTail)

        let pipeline = try Pipeline(home: ann.home)
        let fill = 10_000 - Self.samples - 20
        _ = try pipeline.run([request(first)], count: fill)
        try table.addMedian(.read, 21) {
            _ = try ann.client.call("read", ["conversation": .string(first), "last": 50])
        }
        table.add(.memoryLoaded, try ann.memory())
        if !messagesOnly {
            sleep(60)
            table.add(.memoryAfter, try ann.memory())
        }
        _ = try explode(ann, first)
        try measureExplosions(ann, bob, into: &table)

        try measureRates(ann, bob, into: &table)
        try measureFile(ann, bob, into: &table)
        try ann.stop()
        try bob.stop()
        guard !messagesOnly else { return }
        try measureInboxes(into: &table)
        try measureNeighbours(into: &table)
    }

    /// Rate of durable messages and processor time per message: one conversation, 16, and one with a request per
    /// message.
    private func measureRates(_ ann: NodeProcess, _ bob: NodeProcess, into table: inout Table) throws {
        let several = try (0..<16).map { try agreed(ann, [bob], "one of several \($0)") }
        let batches = try Pipeline(home: ann.home, connections: 1, window: Self.inFlight / Self.batch)
        let singles = try Pipeline(home: ann.home)
        /// Returns messages per second, and processor time per message in microseconds.
        func rate(_ pipeline: borrowing Pipeline, _ requests: [[UInt8]], batch: Int) throws -> (
            rate: Double, sender: Double, receiver: Double
        ) {
            // About a second's worth, because the kernel counts processor time in ticks of 10 ms.
            let trial = try pipeline.run(requests, count: 2_048 / batch) * Double(batch)
            let count = min(200_000, max(8_192, Int(trial))) / batch
            let before = (try ann.processorTime, try bob.processorTime)
            let rate = try pipeline.run(requests, count: count) * Double(batch)
            let messages = Double(count * batch)
            return (rate, (try ann.processorTime - before.0) / messages, (try bob.processorTime - before.1) / messages)
        }
        let one = try rate(batches, [batchRequest(several[0])], batch: Self.batch)
        table.add(.durableRate, one.rate)
        table.add(.senderTime, one.sender)
        table.add(.receiverTime, one.receiver)
        table.add(.durableRateMany, try rate(batches, several.map(batchRequest), batch: Self.batch).rate)
        let single = try rate(singles, [request(several[1])], batch: 1)
        table.add(.durableRateSingle, single.rate)
        table.add(.senderTimeSingle, single.sender)
    }

    func measureMost(into table: inout Table) throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let ann = try NodeProcess(mayfly: mayfly, home: "\(directory)/a", isNew: true)
        let bob = try NodeProcess(mayfly: mayfly, home: "\(directory)/b", isNew: true)
        let conversation = try agreed(ann, [bob], "most")
        try fill(conversation, of: ann, count: 1_000_000)
        try table.addMedian(.readMost, 21) {
            _ = try ann.client.call("read", ["conversation": .string(conversation), "last": 50])
        }
        try ann.stop()
        try bob.stop()
    }

    private func measureIdle(_ node: NodeProcess, into table: inout Table) throws {
        table.add(.status, try status(node))
        table.add(.memory, try node.memory())
        table.add(.memoryPeak, try node.memory("VmHWM"))
        table.add(
            .identity,
            try (0..<20).map { number in
                // The pool is refilled after each.
                while try node.client.call("status", [:])["inboxes"]?["unused"] != 1 {}
                return try microseconds {
                    _ = try node.client.call("conversation.create", ["name": .string("unused \(number)")])
                }
            }.median)
    }

    func status(_ node: NodeProcess) throws -> Double {
        let command = [mayfly, "status", "--home", node.home, "--json"]
        return try (0..<20).map { _ in try microseconds { _ = try Child.run(command) } / 1_000 }.median
    }

    /// From the start of `mayfly send` until the receiver has the file and has checked it.
    private func measureFile(_ ann: NodeProcess, _ bob: NodeProcess, into table: inout Table) throws {
        let conversation = try agreed(ann, [bob], "files")
        let path = "\(directory)/file"
        guard let file = fopen(path, "w") else { throw Failure.system("open \(path)") }
        var random = SystemRandomNumberGenerator()
        for _ in 0..<64 {
            let bytes = (0..<(1 << 17)).map { _ in random.next() as UInt64 }
            fwrite(bytes, 8, bytes.count, file)
        }
        // Synced before the clock starts: with ordered data (ext4) the node's first commit would write the file out.
        guard fflush(file) == 0, fsync(fileno(file)) == 0 else { throw Failure.system("fsync \(path)") }
        fclose(file)
        let time = try microseconds {
            _ = try Child.run([
                mayfly, "send", conversation, "--file", path, "--wait", "delivered", "--timeout", "120", "--home",
                ann.home, "--json",
            ])
        }
        table.add(.file, 64 / (time / 1_000_000))
    }

    /// Makes a conversation of these nodes, without an agreement: its messages stay in memory. Returns its id.
    func converse(_ ann: NodeProcess, _ others: [NodeProcess], _ name: String) throws -> String {
        let created = try ann.client.call("conversation.create", ["name": .string(name)])
        guard let conversation = created["conversation"]?.stringValue else { throw Failure("no id: \(created.text)") }
        for other in others {
            let invite = try ann.client.call("invite.create", ["conversation": .string(conversation)])
            let joined = try other.client.call("join", ["slug": invite["slug"] ?? .null, "timeout": "10s"])
            guard joined["state"] == "ready" else { throw Failure("the join did not succeed: \(joined.text)") }
        }
        for node in [ann] + others { try waitFor(node, conversation, "peerOnline") }
        return conversation
    }

    /// Agrees on terms under which all nodes store messages.
    func agree(_ ann: NodeProcess, _ others: [NodeProcess], _ conversation: String, terms: [String: JSONValue] = [:])
        throws
    {
        let proposal = terms.merging(["conversation": .string(conversation), "lifetime": "1d"]) { first, _ in first }
        _ = try ann.client.call("lifetime.propose", .object(proposal))
        for other in others {
            try waitFor(other, conversation, "lifetimeProposed")
            _ = try other.client.call("lifetime.accept", ["conversation": .string(conversation)])
        }
        for node in [ann] + others { try waitFor(node, conversation, "lifetimeAgreed") }
    }

    func agreed(_ ann: NodeProcess, _ others: [NodeProcess], _ name: String) throws -> String {
        let conversation = try converse(ann, others, name)
        try agree(ann, others, conversation)
        return conversation
    }

    private func waitFor(_ node: NodeProcess, _ conversation: String, _ event: String) throws {
        let watcher = try ControlClient(home: node.home)
        _ = try watcher.call(
            "subscribe", ["conversation": .string(conversation), "since": 0, "events": [.string(event)]])
        guard case .event = try watcher.nextEvent(until: .now + .seconds(60)) else {
            throw Failure("\(event) did not happen in 60 s")
        }
    }

    private func parameters(_ conversation: String) -> JSONValue {
        ["conversation": .string(conversation), "text": .string(Self.text), "wait": "delivered"]
    }

    func request(_ conversation: String) -> [UInt8] {
        ControlRequest(id: .integer(1), method: "send", params: parameters(conversation)).jsonValue.utf8 + [0x0a]
    }

    private func batchRequest(_ conversation: String) -> [UInt8] {
        let texts = [JSONValue](repeating: .string(Self.text), count: Self.batch)
        let params: JSONValue = ["conversation": .string(conversation), "texts": .array(texts), "wait": "delivered"]
        return ControlRequest(id: .integer(1), method: "send", params: params).jsonValue.utf8 + [0x0a]
    }

    func fill(_ conversation: String, of node: NodeProcess, count: Int) throws {
        let pipeline = try Pipeline(home: node.home, connections: 1, window: Self.inFlight / Self.batch)
        _ = try pipeline.run([batchRequest(conversation)], count: (count + Self.batch - 1) / Self.batch)
    }

    private func send(_ node: NodeProcess, _ conversation: String) throws {
        let answer = try node.client.call("send", parameters(conversation))
        guard answer["state"] == "delivered" else { throw Failure("not delivered: \(answer.text)") }
    }

    /// From the request to the delivery, one message after the other.
    func latency(_ node: NodeProcess, _ conversation: String) throws -> (median: Double, tail: Double) {
        for _ in 0..<20 { try send(node, conversation) }
        let all = try (0..<Self.samples).map { _ in try microseconds { try send(node, conversation) } }
        return (all.percentile(0.5), all.percentile(0.99))
    }

    private func readAll(_ node: NodeProcess, _ conversation: String) throws {
        var params: [String: JSONValue] = ["conversation": .string(conversation)]
        while true {
            let page = try node.client.call("read", .object(params))
            guard page["more"] == true, let newest = page["messages"]?.arrayValue?.last?["message"] else { return }
            params["since"] = newest
        }
    }

    /// The receiver holds at most 1 MiB of unread messages, so it reads between rounds.
    private func ephemeralRate(_ ann: NodeProcess, _ bob: NodeProcess, _ conversation: String) throws -> Double {
        let pipeline = try Pipeline(home: ann.home)
        let rounds = try (0..<5).map { _ in
            for node in [ann, bob] { try readAll(node, conversation) }
            return try pipeline.run([request(conversation)], count: 1_000)
        }
        return rounds.median
    }

    /// In turns, after a first explosion that runs the cold code.
    private func measureExplosions(_ ann: NodeProcess, _ bob: NodeProcess, into table: inout Table) throws {
        var (few, many): ([(here: Double, everywhere: Double)], [(here: Double, everywhere: Double)]) = ([], [])
        for round in 0..<5 {
            let small = try agreed(ann, [bob], "ten \(round)")
            for _ in 0..<10 { try send(ann, small) }
            few.append(try explode(ann, small))
            let large = try agreed(ann, [bob], "ten thousand \(round)")
            try fill(large, of: ann, count: 10_000)
            many.append(try explode(ann, large))
        }
        table.add(.explodeFew, few.map(\.here).median)
        table.add(.explodeFewEverywhere, few.map(\.everywhere).median)
        table.add(.explodeMany, many.map(\.here).median)
        table.add(.explodeManyEverywhere, many.map(\.everywhere).median)
    }

    /// Returns the times until the answer and until the other side's signed receipt.
    private func explode(_ node: NodeProcess, _ conversation: String) throws -> (here: Double, everywhere: Double) {
        let watcher = try ControlClient(home: node.home)
        _ = try watcher.call("subscribe", ["conversation": .string(conversation), "events": ["deletionReceipt"]])
        let start = ContinuousClock.now
        _ = try node.client.call("explode", ["conversation": .string(conversation)])
        let here = (ContinuousClock.now - start) / .microseconds(1)
        guard case .event = try watcher.nextEvent(until: .now + .seconds(10)) else {
            throw Failure("there was no deletion receipt in 10 s")
        }
        return (here, (ContinuousClock.now - start) / .microseconds(1))
    }
}

/// Thousands of inboxes: memory asleep and awake, wake time and start time.
extension Run {
    private static let inboxCount = 10_000

    private var create: [UInt8] {
        ControlRequest(id: .integer(1), method: "conversation.create", params: [:]).jsonValue.utf8 + [0x0a]
    }

    func createInboxes(_ count: Int, at node: NodeProcess) throws {
        _ = try Pipeline(home: node.home).run([create], count: count)
    }

    func measureInboxes(into table: inout Table) throws {
        let awake = try NodeProcess(
            mayfly: mayfly, home: "\(directory)/awake", isNew: true, arguments: ["--capacity", "2000"])
        let empty = try awake.memory()
        // One after the other at full speed, so that the pool of one is empty each time.
        let rate = try Pipeline(home: awake.home).run([create], count: 1_000)
        table.add(.identityFresh, 1_000_000 / rate)
        table.add(.memoryAwake, (try awake.memory() - empty) * 1_024 / 1_000)
        try awake.stop()

        let node = try NodeProcess(mayfly: mayfly, home: "\(directory)/many", isNew: true)
        let before = try node.memory()
        let pipeline = try Pipeline(home: node.home)
        _ = try pipeline.run([create], count: 1_000)
        try table.addMedian(.rebalanceFew, 11) { _ = try node.client.call("inbox.rebalance", [:]) }
        _ = try pipeline.run([create], count: Self.inboxCount - 1_000)
        try table.addMedian(.rebalanceMany, 11) { _ = try node.client.call("inbox.rebalance", [:]) }
        table.add(.memoryAsleep, (try node.memory() - before) * 1_024 / Double(Self.inboxCount))
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
        let again = try NodeProcess(mayfly: mayfly, home: "\(directory)/many", isNew: false)
        table.add(.startUpMany, again.startUp)
        table.add(.memoryMany, try again.memory())
        try again.stop()
    }

    /// Cost of a conversation beside thousands of unused ones: messages and `status`. `make allocations` measures
    /// the tick.
    func measureNeighbours(into table: inout Table) throws {
        let ann = try NodeProcess(mayfly: mayfly, home: "\(directory)/neighbour-a", isNew: true)
        let bob = try NodeProcess(mayfly: mayfly, home: "\(directory)/neighbour-b", isNew: true)
        let conversation = try agreed(ann, [bob], "used")
        let pipeline = try Pipeline(home: ann.home)
        func measure(_ rate: Figure, _ median: Figure) throws {
            // New inboxes beyond the capacity go to sleep meanwhile, and the first requests run cold code.
            sleep(5)
            _ = try pipeline.run([request(conversation)], count: 20_000)
            table.add(rate, try pipeline.run([request(conversation)], count: 60_000))
            table.add(median, try latency(ann, conversation).median)
        }
        try measure(.rateAlone, .medianAlone)
        for node in [ann, bob] { try createInboxes(Self.inboxCount, at: node) }
        try measure(.rateNeighbours, .medianNeighbours)
        table.add(.statusNeighbours, try status(ann))
        try ann.stop()
        try bob.stop()
    }
}
