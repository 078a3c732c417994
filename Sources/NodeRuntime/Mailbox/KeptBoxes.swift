import Cryptography
import Messaging
import Store

/// Slot bodies that this node stores as a mailbox. Each box is a row of the store: destroying a bucket's page destroys
/// its slots' keys, and destroying the row's page destroys the box's key. Bodies of kind `memory` stay in memory.
final class KeptBoxes: Part {
    private var rows: [BoxID: RowID] = [:]
    /// Boxes whose rows have a saved state. A start cannot assign a row without one.
    private var named: Set<BoxID> = []
    private var bodies: [BoxID: [SlotID: (slot: KeptSlot, body: [UInt8])]] = [:]

    /// The saved state of a box's row; it does not name the owner.
    struct Snapshot: Codable { var box: BoxID }

    private var client: ClientID? { core.machine.contact?.client }

    /// In a fixed order.
    var boxesInMemory: [BoxID] { bodies.keys.sorted() }

    /// Takes over a box's row, at the start.
    func adopt(_ snapshot: Snapshot, _ row: RowID) {
        rows[snapshot.box] = row
        store.release(row)
    }

    /// Destroys boxes that the contact inbox's record does not name, left by a crash or a failed commit.
    func prune() {
        // Without the contact inbox, which may be unreadable for now, no box is known to be obsolete.
        guard !store.isLocked, let contact = core.machine.contact else { return }
        let known = Set(contact.mailbox.records.map(\.box))
        for box in rows.keys where !known.contains(box) { destroy(box) }
        bodies = bodies.filter { known.contains($0.key) }
        named = []
    }

    func slots(of box: BoxID) -> KeptSlots? {
        let inMemory = bodies[box]?.values.map(\.slot) ?? []
        // An unreadable row may hold this box.
        guard let row = rows[box] else { return shell.unread.isEmpty ? KeptSlots(inMemory) : nil }
        guard !store.isLocked else { return nil }
        var onDisk: [KeptSlot] = []
        do throws(StoreError) {
            try store.visit(row, now: now.milliseconds) { _, stored in
                if let slot = Self.slot(stored.payload, id: SlotID(stored.id)) { onDisk.append(slot) }
                return true
            }
        } catch {
            say("a box could not be read", of: error)
            return nil
        }
        return KeptSlots(inMemory + onDisk, isWhole: store.isWhole(row))
    }

    func perform(_ action: MailboxAction) {
        switch action {
        case .keep(let box, let slot, let body):
            if slot.kind == .memory {
                bodies[box, default: [:]][slot.id] = (slot, body)
            } else {
                keep(slot, body, in: box)
            }
        case .erase(let box, let ids): erase(ids, in: box)
        case .destroy(let box): destroy(box)
        case .give(let link, let box, let slot, let dwell): give(slot, of: box, dwell, on: link)
        }
    }

    private func keep(_ slot: KeptSlot, _ body: [UInt8], in box: BoxID) {
        guard let client else { return }
        shell.writer.storing(client) { _ throws(StoreError) in
            let row = try row(of: box)
            try store.append(
                row, id: slot.id.value, tier: Self.tier(slot), expiresAt: slot.until.milliseconds,
                payload: Self.head(slot) + body)
        }
        // Answers on the contact inbox's links wait for the commit.
        shell.writer.changed(client)
        storage.room.took(byteCount: body.count)
    }

    private func row(of box: BoxID) throws(StoreError) -> RowID {
        let row: RowID
        if let known = rows[box] { row = known } else { row = try store.createRow() }
        rows[box] = row
        guard !named.contains(box) else { return row }
        if try store.loadState(row) == nil { try store.saveState(row, StoredCodec.encode(record: Snapshot(box: box))) }
        named.insert(box)
        return row
    }

    private func erase(_ ids: [SlotID], in box: BoxID) {
        for id in ids { bodies[box]?[id] = nil }
        guard let row = rows[box], let client, !store.isLocked else { return }
        var isChanged = false
        for id in ids {
            // The store has already overwritten expired slots.
            do throws(StoreError) {
                try store.erase(row, id: id.value)
                isChanged = true
            } catch {
                // `discarded` must not be sent while the slot still exists.
                if error != .unknownMessage { return shell.writer.failed(client, error) }
            }
        }
        if isChanged { shell.writer.changed(client) }
    }

    private func destroy(_ box: BoxID) {
        bodies[box] = nil
        named.remove(box)
        guard let row = rows.removeValue(forKey: box) else { return }
        do throws(StoreError) { try store.destroyRow(row) } catch { say("a box could not be destroyed", of: error) }
        shell.commits.schedule()
    }

    private func give(_ slot: KeptSlot, of box: BoxID, _ dwell: Milliseconds, on link: LinkID) {
        let body = body(of: slot.id, in: box)
        let answer: MailboxAnswer =
            body.map { .slot(box, slot.id, dwell: dwell, isAnswer: slot.isAnswer, body: $0) } ?? .absent(box, slot.id)
        shell.commits.sendWhenDurable(.transmit(link, .mailboxAnswer(answer)), on: link)
    }

    /// The body of a slot, or the answer in its place; `nil` if absent or unreadable.
    func body(of id: SlotID, in box: BoxID) -> [UInt8]? {
        if let body = bodies[box]?[id]?.body { return body }
        guard let row = rows[box], !store.isLocked,
            let payload = try? store.read(row, id: id.value, now: now.milliseconds)
        else { return nil }
        return Array(payload.dropFirst(Self.headByteCount))
    }

    // MARK: Bytes: kind (1) ‖ answer (1) ‖ kept at (8) ‖ until (8) ‖ body; numbers big-endian

    private static let headByteCount = 18

    private static func head(_ slot: KeptSlot) -> [UInt8] {
        [UInt8(truncatingIfNeeded: slot.kind.rawValue), slot.isAnswer ? 1 : 0] + bigEndian(slot.keptAt.milliseconds)
            + bigEndian(slot.until.milliseconds)
    }

    private static func slot(_ payload: [UInt8], id: SlotID) -> KeptSlot? {
        guard payload.count > headByteCount, let kind = SlotKind(rawValue: UInt32(payload[0])) else { return nil }
        func time(_ offset: Int) -> Messaging.Timestamp {
            Timestamp(milliseconds: payload[offset..<(offset + 8)].reduce(0) { $0 << 8 | Int64($1) })
        }
        return KeptSlot(
            id: id, kind: kind, isAnswer: payload[1] != 0, byteCount: payload.count - headByteCount, keptAt: time(2),
            until: time(10))
    }

    private static func tier(_ slot: KeptSlot) -> Tier {
        Lifetime.holding(slot.until - slot.keptAt).tier ?? .thirtyDays
    }
}
