import Crypto
import Glibc

/// The node's disk. Expired messages are unreadable even with the raw disk and the passphrase.
///
/// The page ``Store`` describes the files and the order of writes. A grid of keys has one 4 KiB page per inbox (row)
/// and one per expiry bucket (column), destroyed by overwriting in place. The store keeps opaque bytes and knows no
/// protocol.
///
/// This class declares the calls; objects own the state. Each object uses only objects created before it.
///
/// Use it from one thread. Only the group commit has a thread of its own, and reports through a `@Sendable` closure.
/// Times are arguments: milliseconds since the Unix epoch.
package final class Store {
    /// Largest payload of a message in bytes.
    package static let maximumPayload = RecordFile.maximumPlaintext
    /// Journal size of a new home in bytes.
    package static let journalByteCount = 8 << 20
    /// A smaller journal would need a checkpoint with nearly every commit.
    package static let smallestJournalByteCount = 128 << 10
    /// Default limit of ``collect(limit:)``, in files: a millisecond or two.
    package static let collectLimit = DestroyedRows.collectLimit

    package var protection: Protection { keystore.protection }
    package let erasurePromise: ErasurePromise
    /// The data that was overdue when the home was opened, and how it was destroyed.
    package internal(set) var openingReport = ReapReport()
    /// Findings of damage on the disk, without duplicates, for `doctor` and `status`.
    package var damage: [String] { services.damage.entries }
    package var isLocked: Bool { services.isLocked }
    package var isReadOnly: Bool { services.isReadOnly }
    package var isHomeGone: Bool { services.home.isGone }

    var isClosed: Bool { services.isClosed }

    var keystore: Keystore
    /// A change of the keystore failed, so the copies on the disk are unknown.
    var isKeystoreStale = false
    let argon2Floor: Argon2Parameters
    var clock: ClockMark
    /// Other data of an earlier run may be only in the kernel's cache.
    var isUnsettled = false

    let services: StoreServices
    let pages: KeyPages
    let grid: Grid
    let deadlines: DeadlineQueue
    let resting: RestingRows
    let unread: UnreadDirectories
    let destroyed: DestroyedRows
    let rows: RowLifecycle
    let states: StateLogs
    let reader: MessageReader
    let writer: MessageWriter
    let fanOutLists: FanOutLists
    let reaper: Reaper
    let loader: GridLoader

    init(
        home: HomeDirectory, smallFile: FileDescriptor, now: Int64, argon2Floor: Argon2Parameters,
        committingOn thread: CommitThread
    ) throws(StoreError) {
        self.argon2Floor = argon2Floor
        keystore = try Keystore(in: home)
        erasurePromise = home.disk.erasurePromise(home: home.descriptor, smallFile: smallFile)
        var opened: [SlotFile] = []
        do throws(StoreError) {
            for name in [SlotFile.rowsName, SlotFile.columnsName, SlotFile.tombstonesName] {
                opened.append(try SlotFile(name, in: home))
            }
            clock = try ClockMark(in: home)
        } catch {
            for file in opened { file.close() }
            throw error
        }
        let path = home.path(StoreServices.inboxesName)
        let inboxes: FileDescriptor
        do throws(StoreError) {
            inboxes = try onDisk(path) { () throws(SystemError) in
                try home.disk.open(StoreServices.inboxesName, in: home.descriptor, .directory)
            }
        } catch {
            for file in opened { file.close() }
            clock.close()
            if case .io(_, _, ENOTDIR) = error, (try? home.disk.status(path: path))?.kind == .symlink {
                throw .symlink(path: path)
            }
            throw error
        }
        services = StoreServices(home, inboxes: inboxes, now: now, committingOn: thread)
        pages = KeyPages(services, rows: opened[0], columns: opened[1], tombstones: opened[2])
        grid = Grid(services, pages: pages)
        deadlines = DeadlineQueue(grid: grid)
        let segments = SegmentTable(services, grid: grid, deadlines: deadlines)
        let refused = RefusedRows(services)
        let olderVersions = OlderVersions(services)
        let segmentReader = SegmentReader(
            services, deadlines: deadlines, segments: segments, refused: refused, olderVersions: olderVersions)
        resting = RestingRows(services, grid: grid, deadlines: deadlines, segments: segments, refused: refused)
        let recovery = InboxRecovery(services, pages: pages, grid: grid)
        let index = InboxIndex(
            services, pages: pages, grid: grid, segments: segments, refused: refused, olderVersions: olderVersions,
            reader: segmentReader, resting: resting, recovery: recovery)
        unread = UnreadDirectories(services, grid: grid, index: index, resting: resting)
        destroyed = DestroyedRows(services, segments: segments)
        rows = RowLifecycle(
            services, pages: pages, grid: grid, refused: refused, resting: resting, destroyed: destroyed)
        states = StateLogs(services, grid: grid, index: index, recovery: recovery)
        reader = MessageReader(services, grid: grid, index: index, segments: segmentReader)
        writer = MessageWriter(
            services, grid: grid, segments: segments, index: index, reader: reader, olderVersions: olderVersions)
        fanOutLists = FanOutLists(
            services, grid: grid, segments: segments, index: index, reader: reader, writer: writer)
        reaper = Reaper(
            services, pages: pages, grid: grid, deadlines: deadlines, segments: segments, refused: refused,
            olderVersions: olderVersions, reader: segmentReader, resting: resting, index: index, unread: unread,
            destroyed: destroyed, rows: rows)
        loader = GridLoader(
            services, pages: pages, grid: grid, deadlines: deadlines, refused: refused, resting: resting,
            recovery: recovery, unread: unread, destroyed: destroyed, rows: rows)
        if keystore.readableCopyCount < 2 {
            services.report("one of the two copies of \(home.path(Keystore.name)) is damaged")
        }
        if clock.isDamaged { services.report("\(home.path(ClockMark.name)) is damaged") }
    }

    // MARK: - Tombstones

    /// Largest payload of a tombstone in bytes.
    package static let maximumTombstonePayload = TombstonePage.maximumPayload

    /// Durable on return.
    package func addTombstone(keepUntil: Int64, payload: [UInt8]) throws(StoreError) -> TombstoneID {
        let id = randomBytes(16)
        let page = TombstonePage(id: id, version: 0, keepUntil: keepUntil, payload: payload)
        try pages.tombstones.write(page, services.unlockedKeys())
        pages.noteEnd(keepUntil)
        return TombstoneID(bytes: id)
    }

    /// Replaces the payload durably: one of the two versions exists at every moment. Then destroys the old page.
    package func updateTombstone(_ id: TombstoneID, payload: [UInt8]) throws(StoreError) {
        try pages.tombstones.update(id, payload: payload, services.unlockedKeys())
    }

    /// In slot order.
    package func tombstones() throws(StoreError) -> [Tombstone] {
        _ = try services.unlockedKeys()
        return pages.tombstones.all
    }

    /// Destroys the page, also while locked.
    /// - Throws: when the page may still exist; ``reap(hide:destroy:)`` retries.
    package func removeTombstone(_ id: TombstoneID) throws(StoreError) {
        if isClosed { throw .locked }
        try pages.tombstones.remove(id)
    }
}
