import Store

extension FileSystem {
    /// A home with a key file.
    package func makeHome(_ home: String = "/home") throws {
        try Store.create(
            home: home, protection: .keyFile, passphrase: nil, fileSystem: self, journal: SimulatedDisk.journalByteCount
        )
    }
}

extension SimulatedDisk {
    /// Size of a store's journal, which is written whole when a home is made and read whole at each start.
    package static let journalByteCount = 128 << 10

    /// Restores power: durable data survives, and a random part of the rest.
    /// - Parameter seed: A third of the seeds keep nothing else, a third everything.
    package func reboot(seed: UInt64) {
        var luck = Generator(seed: seed)
        let mood = luck.next() % 3
        let outcomes = Outcomes(of: self)
        let choice = outcomes.ways.map { ways in mood == 0 ? 0 : mood == 1 ? ways - 1 : Int(luck.next() % UInt64(ways))
        }
        with { state in state = outcomes.outcome(choice) }
    }

    /// Calls `body` with the current disk at every moment when a power cut could leave something new. `body` must not
    /// use this disk.
    package func observe(_ body: ((SimulatedDisk) -> Void)?) { with { $0.observer = body } }

    /// A copy of the disk and its cache, with no open files.
    package func snapshot() -> SimulatedDisk { Self.snapshot(with { $0 }) }

    static func snapshot(_ state: State) -> SimulatedDisk {
        var state = state
        let nodes = state.nodes
        state.restart()
        state.nodes = nodes
        return SimulatedDisk(state: state)
    }

    /// A copy of the disk on which everything is durable.
    package func copy() -> SimulatedDisk {
        let other = snapshot()
        other.with { state in
            state.synchronize()
            state.operations = 0
            state.history = []
            state.keepsHistory = false
            state.isFull = false
            state.isReadOnly = false
        }
        return other
    }

    /// Makes all writes durable, like `sync`. A disk without power has no cache to write.
    package func synchronizeAll() { with { state in if !state.isCrashed { state.synchronize() } } }

    /// The durable content only, as on the platter of a removed disk.
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

    package var openFileCount: Int { with { $0.files.count } }

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

    /// Equal for disks with equal content, in one process.
    package var contentHash: Int {
        var hasher = Hasher()
        hasher.combine(paths())
        for (_, bytes) in files().sorted(by: { $0.key < $1.key }) {
            bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
            hasher.combine(bytes.count)
        }
        return hasher.finalize()
    }

    /// Every path in byte order; directories end in a slash.
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

    /// Every block that ever belonged to a file, with its offset in the file: current contents in cache and on the
    /// platter, including removed files.
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

    /// Changes a file's bytes durably without the store; `nil` removes the file.
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

extension SimulatedDisk.State {
    fileprivate mutating func synchronize() {
        for (number, node) in nodes {
            nodes[number]?.durable = node.content
            nodes[number]?.durableEntries = node.entries
            nodes[number]?.restart()
        }
    }
}
