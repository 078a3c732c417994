import Adversary
import Control
import FoundationEssentials
import Glibc
import TestSupport

/// One run: two fresh nodes on loopback, driven like a script, and the machine's own figures.
struct Run {
    let site: Site
    private var table: Table { site.table }

    /// - Parameter waits: Measures memory again after a minute.
    func measure(waits: Bool) throws {
        let samples = NodeProcess.samples
        table.add(.rawSynchronize, try Machine.synchronize(in: site.directory, count: samples).median)

        try site.node("a").stop()
        let ann = try site.node("a", isNew: false)
        let bob = try site.node("b")
        table.add(.startUp, ann.startUp)
        try measureIdle(ann)

        let first = try ann.converse([bob], "first")
        try measureLatency(ann, first, .ephemeralMedian, .ephemeralTail)
        table.add(.ephemeralRate, try ephemeralRate(ann, bob, first))
        try ann.agree([bob], first)
        try measureLatency(ann, first, .durableMedian, .durableTail)

        let pipeline = try Pipeline(home: ann.home)
        _ = try pipeline.run([NodeProcess.send(first)], count: 10_000 - samples - 20)
        try measureRead(ann, first, .read)
        table.add(.memoryLoaded, try ann.memory())
        if waits {
            sleep(60)
            table.add(.memoryAfter, try ann.memory())
        }
        _ = try explode(ann, first)
        try measureExplosions(ann, bob)

        try measureRates(ann, bob)
        try measureFile(ann, bob)
        try ann.stop()
        try bob.stop()
    }

    private func measureLatency(_ node: NodeProcess, _ conversation: String, _ median: Figure, _ tail: Figure) throws {
        let all = try node.latencies(conversation)
        table.add(median, all.percentile(0.5))
        table.add(tail, all.percentile(0.99))
    }

    private func measureRead(_ node: NodeProcess, _ conversation: String, _ figure: Figure) throws {
        try table.addMedian(figure, 21) {
            _ = try node.client.call("read", ["conversation": .string(conversation), "last": 50])
        }
    }

    /// Rate of durable messages and processor time per message: one conversation, 16, and one with a request per
    /// message.
    private func measureRates(_ ann: NodeProcess, _ bob: NodeProcess) throws {
        let several = try (0..<16).map { try ann.agreed([bob], "one of several \($0)") }
        let batches = try ann.batches()
        let singles = try Pipeline(home: ann.home)
        /// Returns messages per second, and processor time per message in microseconds.
        func rate(_ pipeline: Pipeline, _ requests: [[UInt8]], batch: Int) throws -> (
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
        let batch = NodeProcess.batch
        let one = try rate(batches, [NodeProcess.sendBatch(several[0])], batch: batch)
        table.add(.durableRate, one.rate)
        table.add(.senderTime, one.sender)
        table.add(.receiverTime, one.receiver)
        table.add(.durableRateMany, try rate(batches, several.map(NodeProcess.sendBatch), batch: batch).rate)
        let single = try rate(singles, [NodeProcess.send(several[1])], batch: 1)
        table.add(.durableRateSingle, single.rate)
        table.add(.senderTimeSingle, single.sender)
    }

    func measureMost() throws {
        let ann = try site.node("a")
        let bob = try site.node("b")
        let conversation = try ann.agreed([bob], "most")
        try ann.fill(conversation, count: 1_000_000)
        try measureRead(ann, conversation, .readMost)
        try ann.stop()
        try bob.stop()
    }

    private func measureIdle(_ node: NodeProcess) throws {
        table.add(.status, try site.status(node))
        table.add(.memory, try node.memory())
        table.add(.memoryPeak, try node.memory("VmHWM"))
        let times = try (0..<20).map { number in
            // The pool is refilled after each.
            while try node.client.call("status", [:])["inboxes"]?["unused"] != 1 {}
            return try microseconds {
                _ = try node.client.call("conversation.create", ["name": .string("unused \(number)")])
            }
        }
        table.add(.identity, times.median)
    }

    /// From the start of `mayfly send` until the receiver has the file and has checked it.
    private func measureFile(_ ann: NodeProcess, _ bob: NodeProcess) throws {
        let conversation = try ann.agreed([bob], "files")
        let path = "\(site.directory)/file"
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
                site.mayfly, "send", conversation, "--file", path, "--wait", "delivered", "--timeout", "120", "--home",
                ann.home, "--json",
            ])
        }
        table.add(.file, 64 / (time / 1_000_000))
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
            return try pipeline.run([NodeProcess.send(conversation)], count: 1_000)
        }
        return rounds.median
    }

    /// In turns, after a first explosion that runs the cold code.
    private func measureExplosions(_ ann: NodeProcess, _ bob: NodeProcess) throws {
        var times: [Figure: [Double]] = [:]
        for round in 0..<5 {
            let small = try ann.agreed([bob], "ten \(round)")
            for _ in 0..<10 { try ann.send(small) }
            let few = try explode(ann, small)
            let large = try ann.agreed([bob], "ten thousand \(round)")
            try ann.fill(large, count: 10_000)
            let many = try explode(ann, large)
            times[.explodeFew, default: []].append(few.here)
            times[.explodeFewEverywhere, default: []].append(few.everywhere)
            times[.explodeMany, default: []].append(many.here)
            times[.explodeManyEverywhere, default: []].append(many.everywhere)
        }
        for (figure, all) in times { table.add(figure, all.median) }
    }

    /// Returns the times until the answer and until the other side's signed receipt.
    private func explode(_ node: NodeProcess, _ conversation: String) throws -> (here: Double, everywhere: Double) {
        let watcher = try node.watch("deletionReceipt", conversation, isFromStart: false)
        let start = ContinuousClock.now
        _ = try node.client.call("explode", ["conversation": .string(conversation)])
        let here = (ContinuousClock.now - start) / .microseconds(1)
        guard case .event = try watcher.nextEvent(until: .now + .seconds(10)) else {
            throw Failure("there was no deletion receipt in 10 s")
        }
        return (here, (ContinuousClock.now - start) / .microseconds(1))
    }
}
