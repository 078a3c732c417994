import Adversary

/// `--only curve`: what a message costs as inboxes, members and stored messages grow. Prints the rows of the table in
/// mayfly-operations(7).
struct CostCurve {
    let site: Site

    func measure() throws {
        print("| | messages a second | p50 | memory of the sender |\n|---|---|---|---|")
        try measureInboxes()
        try measureMembers()
        try measureStored()
    }

    /// Both nodes have the same number of inboxes.
    private func measureInboxes() throws {
        let nodes = [try site.node("inboxes-a"), try site.node("inboxes-b")]
        var count = 0
        for target in [10, 1_000, 10_000] {
            let used = try nodes[0].agreed([nodes[1]], "inboxes \(target)")
            for node in nodes { try node.createInboxes(target - count - 1) }
            count = target
            try show("\(target) inboxes", nodes[0], used, count: 40_000)
        }
        for node in nodes { try node.stop() }
    }

    private func measureMembers() throws {
        let ann = try site.node("members-a")
        var others: [NodeProcess] = []
        for target in [2, 8, 32] {
            while others.count < target - 1 { others.append(try site.node("member-\(others.count)")) }
            let group = try ann.agreed(others, "members \(target)")
            try show("\(target) members", ann, group, count: 40_000 / target)
        }
        for node in [ann] + others { try node.stop() }
    }

    /// A row's own messages are few, and its nodes hold no others but 10,000 that run cold code.
    private func measureStored() throws {
        for stored in [100, 1_000, 10_000, 100_000, 1_000_000] {
            let (ann, bob) = (try site.node("\(stored)-a"), try site.node("\(stored)-b"))
            try ann.fill(try ann.agreed([bob], "cold"), count: 10_000)
            let used = try ann.agreed([bob], "stored")
            try ann.fill(used, count: stored)
            try show("\(stored) stored messages", ann, used, count: 600)
            for node in [ann, bob] { try node.stop() }
        }
    }

    private func show(_ name: String, _ ann: NodeProcess, _ conversation: String, count: Int) throws {
        let median = try ann.latencies(conversation).percentile(0.5)
        let pipeline = try Pipeline(home: ann.home)
        let rates = try (0..<3).map { _ in try pipeline.run([NodeProcess.send(conversation)], count: count / 3) }
        let memory = try ann.memory()
        print("| \(name) | \(Table.text(rates.median)) | \(Table.text(median)) µs | \(Table.text(memory)) MiB |")
    }
}
