import Adversary
import FoundationEssentials

/// `--only curve`: what a message costs as inboxes, members and stored messages grow. Prints the rows of the table in
/// mayfly-operations(7).
struct CostCurve {
    let run: Run

    func measure() throws {
        try FileManager.default.createDirectory(atPath: run.directory, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(atPath: run.directory) }
        print("| | messages a second | p50 | memory of the sender |\n|---|---|---|---|")
        try measureInboxes()
        try measureMembers()
        try measureStored()
    }

    private func node(_ name: String) throws -> NodeProcess {
        try NodeProcess(mayfly: run.mayfly, home: "\(run.directory)/\(name)", isNew: true)
    }

    /// Both nodes have the same number of inboxes.
    private func measureInboxes() throws {
        let nodes = [try node("inboxes-a"), try node("inboxes-b")]
        var count = 0
        for target in [10, 1_000, 10_000] {
            let used = try run.agreed(nodes[0], [nodes[1]], "inboxes \(target)")
            for node in nodes { try run.createInboxes(target - count - 1, at: node) }
            count = target
            try show("\(target) inboxes", nodes[0], used, count: 40_000)
        }
        for node in nodes { try node.stop() }
    }

    private func measureMembers() throws {
        let ann = try node("members-a")
        var others: [NodeProcess] = []
        for target in [2, 8, 32] {
            while others.count < target - 1 { others.append(try node("member-\(others.count)")) }
            let group = try run.agreed(ann, others, "members \(target)")
            try show("\(target) members", ann, group, count: 40_000 / target)
        }
        for node in [ann] + others { try node.stop() }
    }

    /// A row's own messages are few, and its nodes hold no others but 10,000 that run cold code.
    private func measureStored() throws {
        for stored in [100, 1_000, 10_000, 100_000, 1_000_000] {
            let (ann, bob) = (try node("\(stored)-a"), try node("\(stored)-b"))
            try run.fill(try run.agreed(ann, [bob], "cold"), of: ann, count: 10_000)
            let used = try run.agreed(ann, [bob], "stored")
            try run.fill(used, of: ann, count: stored)
            try show("\(stored) stored messages", ann, used, count: 600)
            for node in [ann, bob] { try node.stop() }
        }
    }

    private func show(_ name: String, _ ann: NodeProcess, _ conversation: String, count: Int) throws {
        let median = try run.latency(ann, conversation).median
        let pipeline = try Pipeline(home: ann.home)
        let rates = try (0..<3).map { _ in try pipeline.run([run.request(conversation)], count: count / 3) }
        let memory = try ann.memory()
        print("| \(name) | \(Table.text(rates.median)) | \(Table.text(median)) µs | \(Table.text(memory)) MiB |")
    }
}
