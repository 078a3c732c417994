import DequeModule
import Glibc
import Primitives

/// The lazy half of destroying. The key pages are gone before anything comes here.
extension Store {
    /// Marks the directory of an inbox that was destroyed on purpose, until it is removed.
    private static let goneSuffix = ".gone"
    /// Marks a directory that no key page belongs to, with the moment of its finding.
    private static let lostSuffix = ".lost-"
    /// How long such a directory is kept, in milliseconds: seven days.
    static let lostInterval: Int64 = 7 * 24 * 3_600_000

    /// Whether there is something left to remove.
    package var hasRemains: Bool { !remains.isEmpty }

    /// Removes a bounded part of what destroyed inboxes and buckets have left behind. ``reap(hide:destroy:)`` calls it;
    /// ``nextDeadline`` says when there is more.
    /// - Parameter limit: how much, in files.
    package func collect(limit: Int = Store.collectLimit) {
        guard !isReadOnly, !isClosed else { return }
        var budget = limit
        while budget > 0, let next = remains.popFirst() {
            switch next {
            case .row(let row, let segments): budget -= collect(row, segments)
            case .directory(let name):
                sweeper.remove(directory: name, in: inboxes)
                budget -= 1
            case .segment(let directory, let stem):
                sweeper.remove(segment: stem, directory, in: inboxes)
                budget -= 1
            }
        }
    }

    /// - Returns: what it cost.
    private func collect(_ row: Row, _ segments: [Segment]) -> Int {
        var segments = segments
        while let log = row.log {
            discard(log.file)
            row.log = log.previous
        }
        if let segment = segments.popLast() {
            bury(segment)
            sweeper.free(segment.records.all)
            remains.prepend(.row(row, segments: segments))
            return 1
        }
        sweeper.free(row.index)
        sweeper.free(row.timeline)
        row.forgetContents()
        return 1
    }

    /// Marks the directory of an inbox whose page is destroyed, so that nobody takes it for one whose page is damaged;
    /// its files go later.
    func abandon(directory: String) {
        unsettled[directory] = nil
        let gone = directory + Self.goneSuffix
        do throws(SystemError) {
            try disk.rename(directory, to: gone, in: inboxes)
            hasAbandoned = true
            remains.append(.directory(gone))
        } catch {
            guard error.code != ENOENT else { return }
            hasStrays = true
            remains.append(.directory(directory))
        }
    }

    // MARK: - Orphans

    /// Looks at the names in `inboxes`, once.
    /// - Parameter isComplete: every row page could be read, so that a directory without one has none.
    func sortDirectories(isComplete: Bool) {
        lostDirectories = [:]
        mayBeSetAside = false
        guard !isReadOnly else { return }
        if let names = try? disk.list(inboxes) {
            var known = Set(rows.values.map(\.directoryOnce))
            if let controlRow { known.insert(controlRow.directory) }
            // Their pages are still to be destroyed, and then they are.
            known.formUnion(doomedDirectories.values)
            bringBack(names, known)
            if isComplete { sortOrphans(names, known) }
        } else {
            hasStrays = true
            mayBeSetAside = true
        }
        settlePageEnds()
    }

    /// Directories that were set aside and whose key pages open again.
    private func bringBack(_ names: [String], _ known: Set<String>) {
        let present = Set(names)
        for name in names {
            let stem = stem(of: name)
            guard known.contains(stem), !present.contains(stem), lostMoment(name, stem) != nil else { continue }
            do throws(SystemError) {
                try bringBack(name, stem)
            } catch {
                mayBeSetAside = true
                let path = "\(home.path(Self.inboxesName))/\(name)"
                report("\(path): its key page could be read again, but it cannot be renamed")
            }
        }
    }

    private func bringBack(_ name: String, _ stem: String) throws(SystemError) {
        try disk.rename(name, to: stem, in: inboxes)
        report("\(home.path(Self.inboxesName))/\(name): its key page could be read again; the inbox is back")
    }

    /// Before a directory is taken for one that was never made.
    /// - Throws: when it could not be found out, or its name not be given back; nothing of the inbox is served then.
    func bringBack(_ row: Row) throws(StoreError) {
        guard mayBeSetAside else { return }
        try onDisk("\(home.path(Self.inboxesName))/\(row.directory)") { () throws(SystemError) in
            let names = try disk.list(inboxes)
            guard !names.contains(row.directory) else { return }
            for name in names where lostMoment(name, row.directory) != nil { return try bringBack(name, row.directory) }
        }
    }

    /// Whether there is something of the row under a name that it was given when its page could not be opened.
    func isSetAside(_ row: Row) throws(SystemError) -> Bool {
        try disk.list(inboxes).contains { lostMoment($0, row.directory) != nil }
    }

    private func stem(of name: String) -> String { String(name.prefix { $0 != "." }) }

    /// Directories that belong to no row. What was destroyed on purpose is marked and goes; another one may be an inbox
    /// whose page was read wrongly or is damaged: it is set aside, said to be so, and kept for seven days.
    private func sortOrphans(_ names: [String], _ known: Set<String>) {
        let present = Set(names)
        let orphans = Set(names.filter { !known.contains($0) && Hex.decode($0)?.count == 16 })
        // No more directories than rows that have burnt while nobody could name theirs.
        let isExplained = orphans.subtracting(goneDirectories).count <= burntSlots.count
        for name in names where !known.contains(name) {
            let path = "\(home.path(Self.inboxesName))/\(name)"
            let stem = stem(of: name)
            if name == stem + Self.goneSuffix {
                remains.append(.directory(name))
            } else if let found = lostMoment(name, stem) {
                if !known.contains(stem) {
                    keepLost(name, until: found &+ Self.lostInterval)
                } else if present.contains(stem) {
                    report("\(path) was set aside, and its inbox has another directory by now")
                }
            } else if orphans.contains(name) {
                if isExplained || goneDirectories.contains(name) {
                    abandon(directory: name)
                    continue
                }
                let lost = name + Self.lostSuffix + String(latestHide)
                if (try? disk.rename(name, to: lost, in: inboxes)) != nil {
                    keepLost(lost, until: latestHide &+ Self.lostInterval)
                }
            } else {
                report("\(path) does not belong there and was removed")
                sweeper.remove(directory: name, in: inboxes)
            }
        }
        settleAbandoned()
    }

    private func lostMoment(_ name: String, _ stem: String) -> Int64? {
        guard name.hasPrefix(stem + Self.lostSuffix) else { return nil }
        return Int64(name.dropFirst(stem.count + Self.lostSuffix.count)).flatMap { Tier.times.contains($0) ? $0 : nil }
    }

    private func keepLost(_ name: String, until moment: Int64) {
        if moment <= latestHide { return remains.append(.directory(name)) }
        lostDirectories[name] = moment
        report(
            "\(home.path(Self.inboxesName))/\(name) belongs to no key page: the page is damaged, or its inbox was just "
                + "destroyed when the node was stopped; it cannot be opened and is removed after seven days"
        )
    }

    func reapLostDirectories(_ destroy: Int64) {
        for (name, moment) in lostDirectories where moment <= destroy {
            lostDirectories[name] = nil
            remains.append(.directory(name))
        }
    }
}
