/// The pages of one slot file: which slots are used, and which pages await destruction.
class SealedPages {
    let file: SlotFile
    let isReadOnly: Bool
    let findings: DamageList
    final var slots = SlotMap()
    /// Slots of the pages whose destruction failed or is still to come, in the order in which they were marked. They
    /// serve no data, and every reap retries.
    private(set) final var doomed: [Int] = []

    init(_ file: SlotFile, isReadOnly: Bool, _ findings: DamageList) {
        self.file = file
        self.isReadOnly = isReadOnly
        self.findings = findings
    }

    /// Passes every page that can be read, and reports the others.
    /// - Returns: whether every page could be read.
    final func readAll(_ body: (Int, [UInt8]) -> Void) -> Bool {
        var isComplete = true
        slots.extend(to: file.pageCount)
        file.forEachPage { slot, page in
            if let page { return body(slot, page) }
            slots[slot] = .unreadable
            findings.report("page \(slot) of \(file.path) cannot be read")
            isComplete = false
        }
        return isComplete
    }

    /// Writes a page into a free slot. It is durable on return.
    final func make<Made>(_ write: (_ slot: Int) throws(StoreError) -> Made) throws(StoreError) -> (slot: Int, Made) {
        if isReadOnly { throw .readOnly(path: file.path) }
        let slot = try slots.take(growing: file)
        do throws(StoreError) {
            let made = try write(slot)
            slots[slot] = .used
            return (slot, made)
        } catch {
            // The write may have succeeded all the same: the slot is not reused before it is destroyed.
            doom(slot)
            throw error
        }
    }

    // MARK: - Destroying

    /// Marks a page for destruction. It serves no data from here on.
    final func doom(_ slot: Int) {
        if !doomed.contains(slot) { doomed.append(slot) }
        slots[slot] = .unreadable
    }

    final func removeMark(_ slot: Int) { doomed.removeAll { $0 == slot } }

    /// Overwrites the marked pages and reads them back. The pages of returned failures stay marked.
    @discardableResult final func destroyDoomed(only: Int? = nil) -> [StoreError] {
        guard !isReadOnly else { return [] }
        var failures: [StoreError] = []
        for slot in doomed where only == nil || slot == only {
            do throws(StoreError) {
                try destroy(slot)
                removeMark(slot)
            } catch {
                findings.report("a page waits for its destruction: \(error)")
                failures.append(error)
            }
        }
        return failures
    }

    /// Overwrites a marked page and reads it back.
    func destroy(_ slot: Int) throws(StoreError) {
        try file.destroy(slot)
        slots[slot] = .free
    }
}
