import Messaging
import SimulatedDisk
import Store
import Testing

@testable import NodeRuntime

/// Pages of an inbox's messages, merged from the disk and from memory.
extension MessageArchiveTests {
    /// Adds a message, on the disk or in memory, one millisecond after the last.
    @discardableResult private mutating func come(
        _ number: Int, _ keeping: NodeAction.Keeping, lasting lifetime: Milliseconds? = nil, fromUs: Bool = false,
        body: ContentBody = .opaque
    ) throws -> MessageID {
        now = now + 1
        let type: ContentType =
            switch body {
            case .opaque: .text
            case .reply: .reply
            case .reaction: .reaction
            case .attachment: .attachment
            }
        let lasting: Milliseconds? = if case .memory = keeping { lifetime } else { lifetime ?? .day }
        let message = Message(
            content: Content(
                type: type, id: MessageID.random(&random), sentAt: now, lifetime: .oneDay, agreement: nil, fallback: "",
                shouldPush: true, payload: body == .opaque ? Array("\(number)".utf8) : [], body: body),
            sender: fromUs ? nil : sender, state: fromUs ? .queued : .received, expiresAt: lasting.map { now + $0 })
        try archive.keep(message, keeping, now: now)
        return message.content.id
    }

    private static func number(_ listed: MessageArchive.Listed) -> Int {
        Int(String(decoding: listed.message.content.payload, as: UTF8.self)) ?? -1
    }

    private mutating func page(
        last: Int? = nil, after: MessageID? = nil, before: MessageID? = nil, isUnread: Bool = false, room: Int = .max
    ) throws -> MessageArchive.Page? {
        var taken = 0
        return try archive.page(last: last, after: after, before: before, isUnread: isUnread, now: now) { _ in
            taken += 1
            return taken <= room
        }
    }

    private mutating func numbers(last: Int? = nil, after: MessageID? = nil) throws -> [Int]? {
        try page(last: last, after: after)?.messages.map(Self.number)
    }

    private mutating func unread(room: Int = .max) throws -> [Int]? {
        try page(isUnread: true, room: room)?.messages.map(Self.number)
    }

    /// All pages in order, each starting at the last message of the one before; with `last` ending at its first one.
    private mutating func pages(of room: Int, last: Int? = nil) throws -> [[Int]] {
        var found: [[Int]] = []
        var edge: MessageID?
        repeat {
            let left = last.map { $0 - found.joined().count }
            if left == 0 { break }
            let page = try #require(
                try page(last: left, after: last == nil ? edge : nil, before: last == nil ? nil : edge, room: room))
            let messages = page.messages
            guard let next = last == nil ? messages.last : messages.first else { break }
            found.insert(messages.map(Self.number), at: last == nil ? found.endIndex : 0)
            #expect(next.message.content.id != edge)
            edge = next.message.content.id
        } while found.count < 100
        return found
    }

    /// 0, 3, 6, 9 … are on the disk, and the pairs between them in memory.
    @discardableResult private mutating func fill(_ count: Int) throws -> [MessageID] {
        try (0..<count).map { try come($0, $0 % 3 == 0 ? .disk(.oneDay) : .memory) }
    }

    @Test mutating func `messages on disk and in memory come in one order, on pages of any size and edge`() throws {
        let ids = try fill(20)
        #expect(try numbers() == Array(0..<20))
        for room in 1...21 {
            let pages = try pages(of: room)
            #expect(pages.flatMap { $0 } == Array(0..<20))
            #expect(pages.dropLast().allSatisfy { $0.count == room })
        }
        for last in 1...25 {
            let wanted = Array(max(0, 20 - last)..<20)
            #expect(try numbers(last: last) == wanted)
            #expect(try pages(of: 3, last: last).flatMap { $0 } == wanted)
        }
        #expect(try numbers(last: .max) == Array(0..<20))
        for index in 0..<20 {
            #expect(try numbers(after: ids[index]) == Array((index + 1)..<20))
            #expect(try numbers(last: 4, after: ids[index]) == Array(max(index + 1, 16)..<20))
            let between = try page(after: ids[index / 2], before: ids[index])?.messages.map(Self.number)
            #expect(between == Array(min(index / 2 + 1, index)..<index))
        }
        let unknown = MessageID.random(&random)
        #expect(try numbers(after: unknown) == nil && page(before: unknown) == nil)
    }

    @Test mutating func `a page opens its own messages and the first one after it`() throws {
        let ids = try (0..<500).map { try come($0, .disk(.oneDay)) }
        store.commit { _ in }
        // Messages that only the journal has are read from memory.
        store.lock()
        try store.unlock(passphrase: nil)
        _ = try page(room: 1)
        let before = disk.operations
        #expect(try page(room: 5)?.messages.map(Self.number) == [0, 1, 2, 3, 4])
        #expect(disk.operations - before == 6)
        let opened = disk.operations
        #expect(try page(last: 300, room: 1)?.messages.map(Self.number) == [499])
        #expect(try page(before: ids[200], room: 2)?.messages.map(Self.number) == [198, 199])
        #expect(disk.operations - opened == 5)
        // The first message is on the page even without room for it.
        #expect(try page(room: 0)?.messages.map(Self.number) == [0])
    }

    @Test mutating func `the order survives a sleep, a lock, and the expiry of messages on disk`() throws {
        try come(0, .disk(.oneHour), lasting: 1_000)
        try come(1, .memory)
        try come(2, .disk(.oneHour), lasting: 1_000)
        try come(3, .memory)
        store.commit { _ in }
        now = now + 10_000
        store.reap(hide: now.milliseconds, destroy: now.milliseconds)
        store.lock()
        try store.unlock(passphrase: nil)
        try come(4, .disk(.oneDay))
        try come(5, .memory)
        store.commit { _ in }
        archive.sleep()
        store.release(row)
        try come(6, .disk(.oneDay))
        #expect(try numbers() == [1, 3, 4, 5, 6])
        #expect(try pages(of: 1).flatMap { $0 } == [1, 3, 4, 5, 6])
    }

    @Test mutating func `messages that arrive during a lock keep their order when some of them are stored`() throws {
        try come(0, .disk(.oneDay))
        try come(1, .memory)
        store.lock()
        for number in 2..<8 { try come(number, number % 2 == 0 ? .untilUnlocked(.oneDay) : .memory) }
        try store.unlock(passphrase: nil)
        #expect(try numbers() == Array(0..<8), "before it is written")
        #expect(archive.storeWaiting(now: now).failure == nil)
        try come(8, .disk(.oneDay))
        try come(9, .memory)
        #expect(try numbers() == Array(0..<10))
        #expect(try page()?.messages.filter(\.isStored).map(Self.number) == [0, 2, 4, 6, 8])
        #expect(try pages(of: 2).flatMap { $0 } == Array(0..<10))
    }

    @Test mutating func `a page marks only its own messages, and reactions between them, as read`() throws {
        let ids = try fill(9)
        let size = try #require(archive.read(ids[1], now: now)?.message.byteCount)
        #expect(archive.unreadInMemoryCount == 6)
        _ = try archive.page(last: nil, after: nil, marks: false, now: now) { _ in true }
        #expect(archive.unreadInMemoryCount == 6 && archive.unreadCount(now: now) == 9, "a page that no user sees")
        var page = try #require(try page(last: 1))
        #expect(archive.unreadInMemoryCount == 5 && page.freedByteCount == size && !page.isAllRead)
        page = try #require(try self.page(room: 3))
        #expect(archive.unreadInMemoryCount == 3 && page.freedByteCount == 2 * size && !page.isAllRead)
        #expect(try self.page(room: 3)?.freedByteCount == 0)
        // A reaction has no line of its own: it belongs to its message.
        try come(9, .memory, body: .reaction(Reaction(message: ids[0], emoji: "👍", isRemoved: false)))
        page = try #require(try self.page())
        #expect(archive.unreadInMemoryCount == 0 && page.isAllRead && page.freedByteCount > 3 * size)
        #expect(page.messages.count == 9)
    }

    @Test mutating func `an unread page starts at the first unread message, and is empty without one`() throws {
        try fill(6)
        #expect(try unread(room: 2) == [0, 1])
        #expect(try unread() == [2, 3, 4, 5])
        #expect(try unread() == [])
        try come(6, .disk(.oneDay), fromUs: true)
        #expect(try unread() == [])
        try come(7, .disk(.oneDay))
        try come(8, .disk(.oneDay), fromUs: true)
        try come(9, .memory)
        #expect(try unread() == [7, 8, 9])
        try come(10, .memory)
        try come(11, .disk(.oneDay))
        #expect(try unread() == [10, 11])
    }

    @Test mutating func `messages that the disk refuses to read stay unread`() throws {
        for number in 0..<3 { try come(number, .disk(.oneDay)) }
        store.commit { _ in }
        // From here on the messages are in their segment.
        store.lock()
        try store.unlock(passphrase: nil)
        #expect(try store.nextPlace(row) > 0)
        let segments = disk.files().keys.filter { $0.hasSuffix(".seg") }.compactMap { $0.split(separator: "/").last }
        disk.with { state in for name in segments { state.unreadable[String(name)] = 0..<Int.max } }
        #expect(throws: StoreError.self) { try unread() }
        disk.with { $0.unreadable = [:] }
        #expect(try unread() == [0, 1, 2])
        #expect(try unread() == [])
    }

    @Test mutating func `an unread page skips our messages after an unread one that has expired`() throws {
        try come(0, .disk(.oneHour), lasting: 100)
        try come(1, .disk(.oneDay), fromUs: true)
        try come(2, .memory, fromUs: true)
        now = now + 200
        #expect(try unread() == [])
        try come(3, .memory)
        #expect(try unread() == [3])
    }

    @Test mutating func `a message waiting for the disk is kept in memory after it is read`() throws {
        store.lock()
        try come(0, .untilUnlocked(.oneDay))
        try store.unlock(passphrase: nil)
        let page = try #require(try page())
        #expect(page.messages.count == 1 && page.freedByteCount == 0 && !page.isAllRead)
    }

    @Test mutating func `a due message is on no page, but the next page may still start at it`() throws {
        let ids = [
            try come(0, .disk(.oneHour), lasting: 100), try come(1, .memory, lasting: 100), try come(2, .disk(.oneDay)),
            try come(3, .memory),
        ]
        now = now + 200
        #expect(try numbers() == [2, 3] && numbers(last: 3) == [2, 3])
        #expect(try numbers(after: ids[0]) == [2, 3] && numbers(after: ids[1]) == [2, 3])
        store.reap(hide: now.milliseconds, destroy: now.milliseconds)
        #expect(archive.expire(now: now) == [ids[1]])
        #expect(try numbers(after: ids[0]) == nil && numbers(after: ids[1]) == nil)
    }

    @Test mutating func `the lookup of an id's prefix opens no message`() throws {
        let ids = try fill(60)
        store.commit { _ in }
        let before = disk.operations
        for id in ids {
            let digits = String(id.description.prefix(9))
            #expect(try archive.ids(beginningWith: digits, limit: 9, now: now) == [id])
        }
        #expect(Set(try archive.ids(beginningWith: "", limit: 99, now: now)) == Set(ids))
        #expect(try archive.ids(beginningWith: "", limit: 7, now: now).count == 7)
        #expect(try archive.ids(beginningWith: "xy", limit: 7, now: now).isEmpty)
        #expect(disk.operations == before)
    }

    private mutating func react(
        to target: MessageID, _ keeping: NodeAction.Keeping, lasting lifetime: Milliseconds? = nil, fromUs: Bool = false
    ) throws -> MessageID {
        let reaction = Reaction(message: target, emoji: "👍", isRemoved: false)
        return try come(0, keeping, lasting: lifetime, fromUs: fromUs, body: .reaction(reaction))
    }

    @Test mutating func `a reaction is known only as long as it is kept`() throws {
        let target = try come(1, .disk(.oneDay))
        let (short, held) = (try react(to: target, .disk(.oneHour), lasting: 500), try react(to: target, .memory))
        let nowhere = MessageID.random(&random)
        _ = try react(to: nowhere, .disk(.oneHour), lasting: 500)
        _ = try react(to: nowhere, .memory, lasting: 500)
        #expect(archive.reactionCount(at: target, now: now) == 2)
        #expect(archive.reactionCount(at: nowhere, now: now) == 2)
        now = now + 1_000
        store.reap(hide: now.milliseconds, destroy: now.milliseconds)
        _ = archive.expire(now: now)
        #expect(archive.reactions[target] == [held] && archive.reactions[nowhere] == [])
        #expect(!archive.contains(short))
        archive.forgetMemory()
        #expect(archive.reactions.count == 0)
    }

    @Test mutating func `a reaction stored at the unlock stays known, and goes with its message`() throws {
        let target = try come(1, .disk(.oneDay))
        store.lock()
        let id = try react(to: target, .untilUnlocked(.oneDay))
        try store.unlock(passphrase: nil)
        #expect(archive.storeWaiting(now: now).failure == nil)
        #expect(archive.reactions[target] == [id])
        let clock = NodeClock.Reading(hide: now, confirmed: now)
        #expect(archive.reactions(to: target, clock: clock).count == 1)
        try archive.erase([target])
        #expect(archive.reactions.count == 0)
    }

    @Test mutating func `a start finds reactions in order of arrival, and returns our waiting ones`() throws {
        let target = try come(1, .disk(.oneDay))
        let ids = try (0..<20).map { try react(to: target, .disk(.oneDay), fromUs: $0 % 10 == 0) }
        store.commit { _ in }
        let again = MessageArchive(store: store, row: row, memory: MessageMemory())
        let waiting = try again.restoreHidden(from: 0, now: now)
        #expect(waiting.map(\.content.id) == [ids[0], ids[10]])
        #expect(again.reactions[target] == ids)
    }

    @Test mutating func `a start destroys chunks whose file has no message, and keeps the others`() throws {
        let hash = [UInt8](repeating: 1, count: 32)
        let attachment = Attachment(name: "f", mediaType: "a/b", byteCount: 130_000, hash: hash, text: "")
        let file = try come(1, .disk(.oneDay), body: .attachment(attachment))
        let lost = MessageID.random(&random)
        for (message, index) in [(file, 0), (file, 2), (lost, 0), (lost, 2)] {
            let count = index == 2 ? 100 : Limits.chunkByteCount
            let bytes = [UInt8](repeating: UInt8(index), count: count)
            let chunk = AttachmentChunk(message: message, index: index, isDeflated: false, bytes: bytes)
            _ = try archive.keep(chunk, .disk(.oneDay), expiresAt: now + .day)
        }
        let reaction = try react(to: file, .disk(.oneDay))
        store.commit { _ in }
        let again = MessageArchive(store: store, row: row, memory: MessageMemory())
        _ = try again.restoreHidden(from: 0, now: now)
        for index in [0, 2] {
            let isHere = [file, lost].map { again.hasChunk(index, of: $0) }
            #expect(isHere == [true, false])
        }
        #expect(again.reactions[file] == [reaction])
    }
}
