import Cryptography
import Messaging
import SimulatedDisk
import Store
import Testing

@testable import NodeRuntime

@Suite("Message archive") struct MessageArchiveTests {
    var random = Randomness.seeded(1)
    let sender: PublicKey
    let disk = SimulatedDisk()
    let store: Store
    let row: RowID
    var archive: MessageArchive
    var now = Timestamp(milliseconds: 1_800_000_000_000)

    init() throws {
        sender = try SecretKey(SecretBytes(copying: [UInt8](repeating: 7, count: 32))).publicKey
        try disk.makeHome()
        store = try Store.open(home: "/home", fileSystem: disk, now: now.milliseconds, committingOn: .caller)
        try store.unlock(passphrase: nil)
        row = try store.createRow()
        archive = MessageArchive(store: store, row: row, memory: MessageMemory())
    }

    private mutating func message(lasting lifetime: Milliseconds? = nil) -> Message {
        Message(
            content: Content(
                type: .text, id: MessageID.random(&random), sentAt: now,
                lifetime: lifetime == nil ? .ephemeral : .oneDay, agreement: nil, fallback: "", shouldPush: true,
                payload: Array("hello".utf8)), sender: sender, state: .received, expiresAt: lifetime.map { now + $0 })
    }

    private mutating func keep(_ message: Message, _ keeping: NodeAction.Keeping) throws {
        try archive.keep(message, keeping, now: now)
    }

    private func isKnown(_ message: Message) -> Bool { archive.contains(message.content.id) }

    @Test mutating func `a repeated message is in memory once`() throws {
        let twice = message(lasting: .hour)
        for _ in 0..<2 { try keep(twice, .memory) }
        try keep(message(lasting: .minute), .memory)
        #expect(archive.held.count == 2)
        #expect(archive.expire(now: now + 2 * .minute).count == 1)
        #expect(archive.held.map(\.message) == [twice] && archive.isHeld(twice.content.id))
    }

    @Test mutating func `a message in memory only stays known after a close, until its inbox is removed`() throws {
        let seen = message()
        try keep(seen, .memory)
        archive.forgetMemory()
        #expect(archive.read(seen.content.id, now: now) == nil)
        #expect(isKnown(seen))
        archive.forget()
        #expect(!isKnown(seen))
    }

    @Test mutating func `a message waiting for the unlock is stored once, unless it has expired meanwhile`() throws {
        let (lasting, short) = (message(lasting: .day), message(lasting: .minute))
        try keep(lasting, .untilUnlocked(.oneDay))
        try keep(short, .untilUnlocked(.oneHour))
        let id = lasting.content.id
        #expect(archive.awaitsStorage(id) && archive.isWaiting)
        archive.forgetMemory()
        #expect(archive.awaitsStorage(id), "closing is no unlock")
        let (stored, failure) = archive.storeWaiting(now: now + .minute)
        #expect(stored == [StoredContent(id: id, sender: sender)] && failure == nil)
        #expect(!archive.awaitsStorage(id) && !archive.isWaiting)
        #expect(archive.read(id, now: now)?.isStored == true)
        #expect(isKnown(lasting) && isKnown(short))
        store.commit { _ in }
        #expect(try store.list(row, now: now.milliseconds).count == 1)
        // A duplicate that arrived while the storage was locked, and so could not be recognised.
        try keep(lasting, .untilUnlocked(.oneDay))
        #expect(archive.storeWaiting(now: now + .minute).stored.map(\.id) == [id])
        #expect(try store.list(row, now: now.milliseconds).count == 1)
        store.lock()
        #expect(isKnown(lasting), "its number is in memory")
    }

    @Test mutating func `a message refused by the disk goes on waiting`() throws {
        let waiting = message(lasting: .day)
        try keep(waiting, .untilUnlocked(.oneDay))
        store.lock()
        let (stored, failure) = archive.storeWaiting(now: now)
        #expect(stored.isEmpty && failure == .locked)
        #expect(archive.awaitsStorage(waiting.content.id))
        try store.unlock(passphrase: nil)
        #expect(archive.storeWaiting(now: now).stored.count == 1)
    }

    @Test mutating func `a waiting message stays unread, or read, when it is stored`() throws {
        let messages = (0..<3).map { _ in message(lasting: .day) }
        #expect(archive.unreadCount(now: now) == 0)
        for message in messages { try keep(message, .untilUnlocked(.oneDay)) }
        #expect(archive.unreadCount(now: now) == 3)
        _ = archive.markShown(messages[0].content.id, now: now)
        #expect(archive.unreadCount(now: now) == 2)
        #expect(archive.storeWaiting(now: now).stored.count == 3)
        #expect(archive.unreadCount(now: now) == 2)
        _ = archive.markShown(messages[1].content.id, now: now)
        #expect(archive.unreadCount(now: now) == 1 && !archive.isShownSaved)
        _ = try archive.page(last: nil, after: nil, now: now) { _ in true }
        #expect(archive.unreadCount(now: now) == 0)
    }

    @Test mutating func `a shown message is read, and earlier unshown ones stay unread`() throws {
        let messages = (0..<3).map { _ in message(lasting: .day) }
        for message in messages { try keep(message, .disk(.oneDay)) }
        _ = archive.markShown(messages[2].content.id, now: now)
        #expect(archive.unreadCount(now: now) == 2 && archive.isShownSaved)
        for (left, message) in zip([1, 0], messages) {
            _ = archive.markShown(message.content.id, now: now)
            #expect(archive.unreadCount(now: now) == left)
        }
        // The store reuses places: one below the mark is unread, and that is saved.
        archive.load(shownPlace: 1_000)
        #expect(archive.unreadCount(now: now) == 0 && archive.isShownSaved)
        try keep(message(lasting: .day), .disk(.oneDay))
        #expect(archive.unreadCount(now: now) == 1 && !archive.isShownSaved)
    }

    @Test mutating func `above the limit unread messages are counted again once the known ones are read`() throws {
        let limit = MessageArchive.unreadLimit
        let messages = (0..<(limit + 2)).map { _ in message(lasting: .day) }
        #expect(archive.unreadCount(now: now) == 0)
        for message in messages { try keep(message, .disk(.oneDay)) }
        #expect(archive.unreadCount(now: now) == limit)
        for message in messages.prefix(limit - 1) { _ = archive.markShown(message.content.id, now: now) }
        #expect(archive.unreadCount(now: now) == limit)
        _ = archive.markShown(messages[limit - 1].content.id, now: now)
        #expect(archive.unreadCount(now: now) == 2)
        for (left, message) in zip([1, 0], messages.suffix(2)) {
            _ = archive.markShown(message.content.id, now: now)
            #expect(archive.unreadCount(now: now) == left)
        }
    }

    @Test mutating func `a message waiting for the disk counts towards the limit even after it is shown`() throws {
        let (waiting, ephemeral) = (message(lasting: .day), message())
        try keep(waiting, .untilUnlocked(.oneDay))
        try keep(ephemeral, .memory)
        #expect(archive.unreadInMemoryCount == 1)
        #expect(archive.markShown(waiting.content.id, now: now) == 0)
        #expect(archive.markShown(ephemeral.content.id, now: now) == ephemeral.byteCount)
        #expect(archive.waitingByteCount == waiting.byteCount && archive.unreadInMemoryCount == 0)
    }

    @Test mutating func `a probe reports a full disk, and succeeds when there is room again`() throws {
        disk.with { $0.isFull = true }
        #expect(throws: StoreError.full(path: "/home")) { try store.probe() }
        disk.with { $0.isFull = false }
        let files = disk.openFileCount
        try store.probe(for: 1_000_000)
        #expect(disk.openFileCount == files)
    }

    private mutating func sent(_ count: Int) throws -> [Messaging.MessageID] {
        try (0..<count).map { _ in
            var one = message(lasting: .day)
            one.sender = nil
            one.state = .queued
            try keep(one, .disk(.oneDay))
            return one.content.id
        }
    }

    /// The archive after a restart, with nothing in memory.
    private var reopened: MessageArchive { MessageArchive(store: store, row: row, memory: MessageMemory()) }

    @Test mutating func `statuses of many messages are one record, and are read with their messages`() throws {
        let ids = try sent(100)
        store.commit { _ in }
        let before = try store.nextPlace(row)
        let said = Delivery(member: sender, state: .delivered, at: now)
        for id in ids.dropLast() {
            archive.setDelivery(said, of: id)
            archive.setState(.delivered, of: id)
        }
        // The state is known before it is written.
        #expect(archive.read(ids[0], now: now)?.message.state == .delivered)
        try archive.writeStatuses()
        #expect(archive.learned.isEmpty)
        #expect(try store.nextPlace(row) == before + 1)
        store.commit { _ in }
        let again = reopened
        #expect(again.read(ids[3], now: now)?.message.deliveries == [said])
        let page = try #require(try again.page(last: 3, after: nil, now: now) { _ in true })
        #expect(page.messages.map(\.message.content.id) == ids.suffix(3))
        #expect(page.messages.map(\.message.state) == [.delivered, .delivered, .queued])
        #expect(try store.list(row, now: now.milliseconds).count == 100)
    }

    @Test mutating func `a copy given up for one member is known after a restart, though other members wait`() throws {
        let ids = try sent(1)
        let missed = Delivery(member: sender, state: .expiredUndelivered, at: now)
        archive.setDelivery(missed, of: ids[0])
        try archive.writeStatuses()
        store.commit { _ in }
        #expect(reopened.read(ids[0], now: now)?.message.deliveries == [missed])
    }

    @Test mutating func `the later of two statuses counts, but a failure stays after a delivery`() throws {
        let ids = try sent(2)
        archive.setState(.cancelled, of: ids[0])
        archive.setDelivery(Delivery(member: sender, state: .failed, at: now), of: ids[1])
        archive.setState(.failed, of: ids[1])
        try archive.writeStatuses()
        store.commit { _ in }
        archive = reopened
        archive.setState(.queued, of: ids[0])
        archive.setState(.delivered, of: ids[1])
        try archive.writeStatuses()
        store.commit { _ in }
        archive = reopened
        #expect(archive.read(ids[0], now: now)?.message.state == .queued)
        #expect(archive.read(ids[1], now: now)?.message.state == .failed)
    }

    @Test mutating func `a rescheduled message keeps its statuses, and an erased one has none`() throws {
        let ids = try sent(2)
        for id in ids { archive.setState(.delivered, of: id) }
        try archive.writeStatuses()
        try archive.reschedule(ids[0], expiresAt: now + 10 * .day, now: now)
        try archive.erase([ids[1]])
        archive.setState(.failed, of: ids[1])
        try archive.writeStatuses()
        store.commit { _ in }
        archive = reopened
        let later = now + 2 * .day
        store.reap(hide: later.milliseconds, destroy: later.milliseconds)
        #expect(archive.read(ids[0], now: later)?.message.state == .delivered)
        #expect(archive.read(ids[1], now: now) == nil && archive.learned.isEmpty)
    }

    @Test mutating func `a member's message that reading has ended counts as read until it would have ended unread`()
        throws
    {
        let message = message(lasting: 20 * .day)
        var failed = self.message(lasting: 20 * .day)
        failed.state = .failed
        let id = message.content.id
        for one in [message, failed] {
            try keep(one, .disk(.thirtyDays))
            #expect(!archive.wasRead(one.content.id))
            try archive.reschedule(one.content.id, expiresAt: now + .day, now: now)
        }
        #expect(archive.wasRead(id) && !archive.wasRead(failed.content.id), "a failed file was not read")
        store.commit { _ in }
        let later = now + 2 * .day
        store.reap(hide: later.milliseconds, destroy: later.milliseconds)
        archive = reopened
        #expect(try archive.restoreHidden(from: 0, now: later).isEmpty, "the mark of a message that is gone stays")
        #expect(!archive.contains(id) && archive.wasRead(id))
        let end = now + 21 * .day
        store.reap(hide: end.milliseconds, destroy: end.milliseconds)
        #expect(!archive.wasRead(id))
    }

    @Test mutating func `statuses of unreadable messages are kept until the disk reads them`() throws {
        let ids = try sent(2)
        store.commit { _ in }
        // From here on the messages are in their segment.
        store.lock()
        archive.forgetOutgoing()
        try store.unlock(passphrase: nil)
        let segments = disk.files().keys.filter { $0.hasSuffix(".seg") }.compactMap { $0.split(separator: "/").last }
        disk.with { state in for name in segments { state.unreadable[String(name)] = 0..<Int.max } }
        for id in ids { archive.setState(.delivered, of: id) }
        try archive.writeStatuses()
        #expect(ids.allSatisfy { archive.learned[$0] != nil })
        disk.with { $0.unreadable = [:] }
        let later = now + 2 * .second
        store.reap(hide: later.milliseconds, destroy: later.milliseconds)
        try archive.writeStatuses()
        #expect(archive.learned.isEmpty)
        store.commit { _ in }
        for id in ids { #expect(reopened.read(id, now: later)?.message.state == .delivered) }
    }

    @Test mutating func `a status stays until the bucket of its message ends`() throws {
        let first = try sent(1)
        var late = message(lasting: 12 * .hour)
        late.sender = nil
        try keep(late, .disk(.oneDay))
        for id in first + [late.content.id] { archive.setState(.delivered, of: id) }
        let before = try store.nextPlace(row)
        try archive.writeStatuses()
        #expect(try store.nextPlace(row) == before + 2)
        store.commit { _ in }
        let end = (now + 13 * .hour).milliseconds
        let report = store.reap(hide: end, destroy: end)
        #expect(report.columnsDestroyed == 1)
        archive = reopened
        #expect(archive.read(first[0], now: now + 13 * .hour)?.message.state == .delivered)
    }
}
