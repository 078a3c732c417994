/// What only the tests do with a disk.
extension SimulatedDisk {
    /// For a store's journal, which is written whole when a home is made and read whole at each start.
    package static let journalByteCount = 128 << 10

    /// The power comes back: everything durable, and of the rest what luck left.
    /// - Parameter seed: decides the luck; a third of the seeds leave nothing, a third everything.
    package func reboot(seed: UInt64) {
        var luck = Generator(seed: seed)
        let mood = luck.next() % 3
        let outcomes = Outcomes(of: self)
        let choice = outcomes.ways.map { ways in mood == 0 ? 0 : mood == 1 ? ways - 1 : Int(luck.next() % UInt64(ways))
        }
        with { state in state = outcomes.outcome(choice) }
    }

    /// Calls `body` at every moment at which the power may go and leave something new, with the disk as it is then. It must
    /// not touch this disk.
    package func observe(_ body: ((SimulatedDisk) -> Void)?) { with { $0.observer = body } }

    /// The same disk once more, cache and all, with nothing open.
    package func snapshot() -> SimulatedDisk { Self.snapshot(with { $0 }) }

    static func snapshot(_ state: State) -> SimulatedDisk {
        var state = state
        let nodes = state.nodes
        state.restart()
        state.nodes = nodes
        return SimulatedDisk(state: state)
    }

    /// The same disk once more, all of it durable.
    package func copy() -> SimulatedDisk {
        let other = snapshot()
        other.with { state in
            for number in state.nodes.keys {
                guard let node = state.nodes[number] else { continue }
                state.nodes[number]?.durable = node.content
                state.nodes[number]?.durableEntries = node.entries
                state.nodes[number]?.restart()
            }
            state.operations = 0
            state.history = []
            state.keepsHistory = false
            state.isFull = false
            state.isReadOnly = false
        }
        return other
    }

    /// Everything that was written is durable, as after `sync`. A disk whose power is gone has nothing left to write.
    package func synchronizeAll() {
        with { state in
            guard !state.isCrashed else { return }
            for number in state.nodes.keys {
                guard let node = state.nodes[number] else { continue }
                state.nodes[number]?.durable = node.content
                state.nodes[number]?.durableEntries = node.entries
                state.nodes[number]?.restart()
            }
        }
    }

    /// What is on the platter, as whoever takes the disk out finds it.
    package func durableCopy() -> SimulatedDisk {
        let other = snapshot()
        other.with { state in
            for number in state.nodes.keys {
                guard let node = state.nodes[number] else { continue }
                state.nodes[number]?.content = node.durable
                state.nodes[number]?.entries = node.durableEntries
                state.nodes[number]?.restart()
            }
        }
        return other.copy()
    }

    /// How many descriptors are open.
    package var openFileCount: Int { with { $0.files.count } }

    /// Every file as it is now: path to bytes.
    package func files() -> [String: [UInt8]] {
        with { state in
            var found: [String: [UInt8]] = [:]
            func visit(_ number: Int, _ path: String) {
                guard let node = state.nodes[number] else { return }
                if !node.isDirectory { found[path] = node.content.bytes }
                for (name, child) in node.entries { visit(child, path + "/" + name) }
            }
            visit(0, "")
            return found
        }
    }

    /// Every path, directories with a slash at the end, in byte order.
    package func paths() -> [String] {
        with { state in
            var found: [String] = []
            func visit(_ number: Int, _ path: String) {
                guard let node = state.nodes[number] else { return }
                if !path.isEmpty { found.append(node.isDirectory ? path + "/" : path) }
                for (name, child) in node.entries { visit(child, path + "/" + name) }
            }
            visit(0, "")
            return found.sorted()
        }
    }

    /// What a thief reads off the platter: every block that was ever given to a file and what it holds now, those of removed
    /// files too, as the cache and as the platter have them; and where in their file they lay.
    package func image() -> [(offset: Int, bytes: [UInt8])] {
        with { state in
            let blocks = state.nodes.keys.sorted().flatMap { number -> [[UInt8]] in
                guard let node = state.nodes[number], !node.isDirectory else { return [] }
                let isClean = node.pending.isEmpty && node.sizes.isEmpty
                return isClean ? [node.content.bytes] : [node.content.bytes, node.durable.bytes]
            }
            return blocks.map { (0, $0) } + state.oldBlocks
        }
    }

    package func setMode(_ mode: UInt32, of path: String) {
        with { state in
            let parts = path.split(separator: "/").map(String.init)
            let number = parts.reduce(0 as Int?) { folder, part in folder.flatMap { state.nodes[$0]?.entries[part] } }
            guard let number else { preconditionFailure(path) }
            state.nodes[number]?.mode = mode
        }
    }

    /// Changes a file's bytes behind the store's back, durably; `nil` removes it.
    package func replace(_ path: String, with bytes: [UInt8]?) {
        with { state in
            var folder = 0
            var parts = path.split(separator: "/").map(String.init)
            let last = parts.removeLast()
            for part in parts {
                guard let next = state.nodes[folder]?.entries[part] else { preconditionFailure(path) }
                folder = next
            }
            guard let bytes else {
                state.nodes[folder]?.entries[last] = nil
                state.nodes[folder]?.durableEntries[last] = nil
                state.nodes[folder]?.pendingEntries[last] = nil
                return
            }
            guard let number = state.nodes[folder]?.entries[last], state.nodes[number] != nil else {
                preconditionFailure(path)
            }
            state.nodes[number]?.durable = SimulatedBytes(bytes)
            if let entries = state.nodes[number]?.entries { state.nodes[number]?.durableEntries = entries }
            state.nodes[number]?.restart()
        }
    }
}
