import DequeModule
import Dispatch
import Glibc
import Primitives

/// Removes files on a thread of its own: unlinking 16 MiB takes longer than writing a message.
final class Sweeper: Sendable {
    private let disk: any FileSystem
    private let queue: DispatchQueue?

    init(disk: any FileSystem, thread: CommitThread) {
        self.disk = disk
        queue =
            switch thread {
            case .own: DispatchQueue(label: "mayfly.store.remains", qos: .utility)
            case .caller, .later: nil
            }
    }

    /// Returns when everything asked for is done.
    func drain() { queue?.sync {} }

    private func run(_ body: @escaping @Sendable () -> Void) {
        if let queue { queue.async(execute: body) } else { body() }
    }

    /// Lets go of large values elsewhere: giving back a hundred megabytes takes a while too.
    func free(_ values: some Sendable) {
        run { withExtendedLifetime(values) {} }
    }

    /// Removes a directory with its files, or a file in its place. Errors do not matter: unlocking removes it later.
    func remove(directory name: String, in parent: FileDescriptor) {
        run { [disk] in
            guard let directory = try? disk.open(name, in: parent, .directory) else {
                try? disk.remove(name, in: parent, isDirectory: false)
                return
            }
            for file in (try? disk.list(directory)) ?? [] {
                try? disk.remove(file, in: directory, isDirectory: false)
            }
            disk.close(directory)
            try? disk.remove(name, in: parent, isDirectory: true)
        }
    }

    /// Removes a segment and its sidecar.
    func remove(segment stem: String, _ directory: String, in parent: FileDescriptor) {
        run { [disk] in
            guard let opened = try? disk.open(directory, in: parent, .directory) else { return }
            defer { disk.close(opened) }
            try? disk.remove(stem + ".seg", in: opened, isDirectory: false)
            try? disk.remove(stem + ".expiry", in: opened, isDirectory: false)
        }
    }
}

/// What is left of something whose key is destroyed: memory and files, removed a little at a time, because nothing depends
/// on when.
enum Remains {
    case row(Row, segments: [Segment])
    /// A directory in `inboxes`, renamed already.
    case directory(String)
    case segment(directory: String, stem: String)
}

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
        var waiting: [Remains] = []
        while budget > 0, let next = remains.popFirst() {
            switch next {
            case .row(let row, let segments): budget -= collect(row, segments, &waiting)
            case .directory(let name):
                sweeper.remove(directory: name, in: inboxes)
                budget -= 1
            case .segment(let directory, let stem):
                sweeper.remove(segment: stem, directory, in: inboxes)
                budget -= 1
            }
        }
        remains.append(contentsOf: waiting)
    }

    /// - Returns: what it cost.
    private func collect(_ row: Row, _ segments: [Segment], _ waiting: inout [Remains]) -> Int {
        var segments = segments
        if let log = row.log {
            guard log.file.inFlight.isEmpty else {
                waiting.append(.row(row, segments: segments))
                return 1
            }
            stateLogs[log.file.number] = nil
            discard(log.file)
            row.log = nil
        }
        if let segment = segments.popLast() {
            guard segment.file.inFlight.isEmpty else {
                waiting.append(.row(row, segments: segments + [segment]))
                return 1
            }
            bury(segment)
            sweeper.free(segment.records)
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

    /// Directories that belong to no row. What was destroyed on purpose is marked and goes; another one may be an inbox
    /// whose page was read wrongly or is damaged: it is set aside, said to be so, and kept for seven days.
    func sortOrphans() {
        lostDirectories = [:]
        guard !isReadOnly else { return }
        guard let names = try? disk.list(inboxes) else {
            hasStrays = true
            return
        }
        var known = Set(rows.values.map(\.directoryOnce))
        if let controlRow { known.insert(controlRow.directory) }
        // Their pages are still to be destroyed, and then they are.
        known.formUnion(doomedDirectories.values)
        let present = Set(names)
        let orphans = Set(names.filter { !known.contains($0) && Hex.decode($0)?.count == 16 })
        // No more directories than rows that have burnt while nobody could name theirs.
        let isExplained = orphans.subtracting(goneDirectories).count <= burntSlots.count
        for name in names where !known.contains(name) {
            let path = "\(home.path(Self.inboxesName))/\(name)"
            let stem = String(name.prefix { $0 != "." })
            if name == stem + Self.goneSuffix {
                remains.append(.directory(name))
            } else if let found = lostMoment(name, stem) {
                if known.contains(stem), !present.contains(stem) {
                    report("\(path): its key page could be read again; the inbox is back")
                    try? disk.rename(name, to: stem, in: inboxes)
                } else {
                    keepLost(name, until: found &+ Self.lostInterval)
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
        settlePageEnds()
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
