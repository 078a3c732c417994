import Cryptography

/// The mailbox: keeps boxes for its named peers, and in the boxes slots with sealed bodies of a few sizes, until the
/// owner discards a slot or the slot expires. The mailbox cannot read the bodies.
///
/// States of a link to the contact inbox:
///
///     guest ──claim, granted──▶ holder ──silent, closed, another link of this owner──▶ gone
///     guest ──put, take, discard──▶ guest
///
/// Any link that shows a slot's tag may discard the slot, and take it if it is a notice or the answer to one. Any link
/// that names a box may put into it. Only the holder lists, purges and takes contents. Boxes are durable. The first
/// request for a box reads its slots from the disk.
package struct MailboxServiceStateMachine: Sendable {
    private struct Box: Sendable {
        var record: BoxRecord
        /// `nil` until the slots have been read from the disk.
        var slots: [SlotID: KeptSlot]?
        /// The retry after a read that did not give all slots.
        var reread: Reread?
        /// When a retry found slots that were not announced to the owner.
        var lateAt: Timestamp?
        var byteCount = 0
        var puts = TokenBucket(Limits.putRate)
        /// Rate of contents on the disk, in KiB: a discarded slot is overwritten, but uses its bytes until its bucket
        /// ends.
        var kibibytes = TokenBucket(Limits.putKibibyteRate)
        /// The owner has been told of waiting slots and has not listed the box since.
        var isAnnounced = false
        var savedAt: Timestamp

        init(record: BoxRecord, slots: [SlotID: KeptSlot]? = nil) {
            (self.record, self.slots, savedAt) = (record, slots, record.seenAt)
        }
    }

    private struct Reread: Sendable {
        var at: Timestamp
        var pause: Milliseconds
    }

    private struct OwnerRates: Sendable {
        /// New boxes: each is a write.
        var boxes = TokenBucket(Limits.boxRate)
        /// Bodies that the owner takes, in units of ``Limits/takeUnit``.
        var takes = TokenBucket(Limits.takeRate)

        func isFull(now: Timestamp) -> Bool { boxes.isFull(now: now) && takes.isFull(now: now) }
    }

    private struct Holder: Sendable {
        let owner: PublicKey
        let secret: MailboxSecret
        var heardAt: Timestamp
    }

    package private(set) var terms = MailboxTerms()
    private var boxes: [BoxID: Box] = [:]
    private var holders: [LinkID: Holder] = [:]
    private var holdersByOwner: [PublicKey: LinkID] = [:]
    private var sources = RateTable<UInt64>(Limits.putSourceRate, limit: Limits.putSourceCount)
    private var guests = RateTable<UInt64?>(Limits.takeSourceRate, limit: Limits.putSourceCount)
    private var owners: [PublicKey: OwnerRates] = [:]
    private var counted = MailboxCounts()
    private var memoryByteCount = 0
    /// A lower bound of the first expiry of a slot.
    private var slotsEnd: Timestamp?

    package init(_ records: [BoxRecord] = []) { for record in records { boxes[record.box] = Box(record: record) } }

    package var records: [BoxRecord] { boxes.values.map(\.record).sorted { $0.box < $1.box } }

    package var counts: MailboxCounts {
        var result = counted
        result.owners = Set(boxes.values.map(\.record.owner)).count
        result.boxes = boxes.count
        result.unreadBoxes = boxes.values.count { $0.slots == nil }
        result.slots = boxes.values.reduce(0) { $0 + ($1.slots?.count ?? 0) }
        result.byteCount = boxes.values.reduce(0) { $0 + $1.byteCount }
        result.memoryByteCount = memoryByteCount
        return result
    }

    /// For `mailbox status` at the mailbox.
    package var occupancy: [Occupancy] {
        records.map {
            Occupancy(record: $0, slotCount: boxes[$0.box]?.slots?.count, byteCount: boxes[$0.box]?.byteCount ?? 0)
        }
    }

    package struct Occupancy: Hashable, Sendable {
        package let record: BoxRecord
        /// `nil` until the first request for the box since the start.
        package let slotCount: Int?
        package let byteCount: Int
    }

    /// Whether this link is a holder's. It may stay open while it is used.
    package func serves(_ link: LinkID) -> Bool { holders[link] != nil }

    package var nextDeadline: Timestamp? {
        let silence = holders.values.map { $0.heardAt + Limits.mailboxSilence }.min()
        let away = boxes.values.filter { holdersByOwner[$0.record.owner] == nil }
        let forgotten = away.map { $0.record.seenAt + Limits.boxSilence }.min()
        let present = boxes.values.filter { holdersByOwner[$0.record.owner] != nil }
        let unsaved = present.map { $0.savedAt + .day }.min()
        let unread = present.compactMap { $0.lateAt ?? $0.reread?.at }.min()
        return earliest(silence, forgotten, unsaved, unread, slotsEnd)
    }

    // MARK: Admission

    /// Applies a new configuration or peer list: destroys the boxes of owners that are no longer named peers.
    package mutating func configure(_ terms: MailboxTerms, _ client: ClientID, isPeer: (PublicKey) -> Bool)
        -> [NodeAction]
    {
        self.terms = terms
        var result: [NodeAction] = []
        for link in holders.keys.sorted() {
            guard let owner = holders[link]?.owner, !terms.isServing || !isPeer(owner) else { continue }
            let refusal: MailboxRefusal = terms.isServing ? .unknownPeer : .notServing
            result += [.forward(link, .mailboxAnswer(.refused(refusal))), .close(link)]
            forget(link)
        }
        let gone = boxes.values.map(\.record).filter { !isPeer($0.owner) }.map(\.box).sorted()
        return result + destroy(gone, client)
    }

    private mutating func destroy(_ gone: [BoxID], _ client: ClientID) -> [NodeAction] {
        guard !gone.isEmpty else { return [] }
        for box in gone {
            memoryByteCount -= memory(of: boxes[box]?.slots?.values.map(\.self) ?? [])
            boxes[box] = nil
        }
        return gone.map { .mailbox(.destroy($0)) } + [.save(client)]
    }

    private func memory(of slots: [KeptSlot]) -> Int {
        slots.reduce(0) { $0 + ($1.kind == .memory ? $1.byteCount : 0) }
    }

    private mutating func forget(_ link: LinkID) {
        guard let holder = holders.removeValue(forKey: link) else { return }
        guard holdersByOwner[holder.owner] == link else { return }
        holdersByOwner[holder.owner] = nil
        for (box, known) in boxes where known.record.owner == holder.owner && known.record.seenAt < holder.heardAt {
            boxes[box]?.record.seenAt = holder.heardAt
        }
    }

    package mutating func linkClosed(_ link: LinkID) { forget(link) }

    package mutating func heard(_ link: LinkID, now: Timestamp) { holders[link]?.heardAt = now }

    // MARK: Requests

    /// - Parameter remote: the other side's key for this link only.
    package mutating func receive(
        _ request: MailboxRequest, from remote: PublicKey, on link: LinkID, client: ClientID, own: IdentityKey,
        _ turn: Turn
    ) -> [NodeAction] {
        heard(link, now: turn.now)
        switch request {
        case .claim(let owner, let proof, let labels):
            return claim(owner, proof, labels, from: remote, on: link, client, own, turn)
        case .drop(let labels):
            guard let holder = holders[link] else { return [.close(link)] }
            let gone = labels.map(holder.secret.box).filter { boxes[$0]?.record.owner == holder.owner }
            return destroy(gone, client)
        case .list(let box): return list(box, on: link, turn)
        case .purge(let box, let ids):
            // The owner of an exploded conversation's box does not know whether we have forgotten the box.
            if ids.isEmpty, holders[link] != nil, boxes[box] == nil { return discard(box, [], on: link) }
            guard isHeld(box, by: link), ids.count <= Limits.slotListCount, !turn.isLocked, load(box, turn) else {
                return [.close(link)]
            }
            guard ids.isEmpty else { return discard(box, ids.filter { boxes[box]?.slots?[$0] != nil }, on: link) }
            boxes[box]?.isAnnounced = false
            let contents = boxes[box]?.slots?.values.filter { $0.kind != .notice } ?? []
            return discard(box, contents.map(\.id), on: link)
        case .put(let box, let put): return self.put(put, into: box, on: link, client, turn)
        case .take(let box, let tags): return take(tags, from: box, on: link, turn)
        case .discard(let box, let tags, let answer): return discard(tags, of: box, answer, on: link, client, turn)
        }
    }

    private func isHeld(_ box: BoxID, by link: LinkID) -> Bool {
        guard let owner = holders[link]?.owner else { return false }
        return boxes[box]?.record.owner == owner
    }

    private mutating func claim(
        _ owner: PublicKey, _ proof: [UInt8], _ labels: [BoxLabel], from remote: PublicKey, on link: LinkID,
        _ client: ClientID, _ own: IdentityKey, _ turn: Turn
    ) -> [NodeAction] {
        func refuse(_ refusal: MailboxRefusal) -> [NodeAction] {
            counted.refused += 1
            return [.forward(link, .mailboxAnswer(.refused(refusal)))]
        }
        guard labels.count <= Limits.boxLabelCount else { return [.close(link)] }
        guard terms.isServing else { return refuse(.notServing) }
        // Strangers are refused before the proof costs a curve operation.
        guard turn.node.isNamedPeer(owner) else { return refuse(.unknownPeer) }
        guard !turn.isLocked, !own.isWiped else { return refuse(.unavailable) }
        var result: [NodeAction] = []
        let secret: MailboxSecret
        let isNew = holders[link] == nil
        if let holder = holders[link] {
            guard holder.owner == owner else { return [.close(link)] }
            secret = holder.secret
        } else {
            secret = MailboxSecret(mailbox: own.publicKey, owner: owner, own: own)
            guard equalInConstantTime(secret.proof(of: remote), proof) else { return refuse(.unknownPeer) }
            // A new link means that the owner's earlier one is lost.
            if let before = holdersByOwner[owner] {
                forget(before)
                result.append(.close(before))
            }
            holders[link] = Holder(owner: owner, secret: secret, heardAt: turn.now)
            holdersByOwner[owner] = link
        }
        var isChanged = false
        var held = boxes.values.count { $0.record.owner == owner }
        var isTooFast = false
        let named = labels.map(secret.box)
        for box in named {
            if let known = boxes[box] {
                // A claim saves `seenAt` at most once an hour.
                boxes[box]?.record.seenAt = turn.now
                guard turn.now - known.savedAt > .hour else { continue }
                boxes[box]?.savedAt = turn.now
                isChanged = true
            } else if boxes.count < terms.boxCount {
                isTooFast = isTooFast || !mayMakeBox(owner, now: turn.now)
                guard !isTooFast else { continue }
                boxes[box] = Box(record: BoxRecord(box: box, owner: owner, seenAt: turn.now), slots: [:])
                held += 1
                isChanged = true
            }
        }
        if isChanged { result.append(.save(client)) }
        let grant = MailboxGrant(
            boxCount: isTooFast ? held : max(0, held + terms.boxCount - boxes.count), slotCount: terms.slotCount,
            byteCount: terms.boxByteCount, longest: terms.longest)
        // The box is durable before it is granted.
        result.append(.transmit(link, .mailboxAnswer(.granted(grant))))
        // The owner claims no box of an exploded conversation, but purges the contents that wait there.
        let others = isNew ? records.filter { $0.owner == owner && !named.contains($0.box) }.map(\.box) : []
        for box in named + others where boxes[box] != nil {
            let isWaiting = load(box, turn) && boxes[box]?.slots?.values.contains { !$0.isAnswer } ?? false
            boxes[box]?.isAnnounced = isWaiting
            boxes[box]?.lateAt = nil
            if isWaiting { result.append(.transmit(link, .mailboxAnswer(.waiting(box)))) }
        }
        return result
    }

    private mutating func mayMakeBox(_ owner: PublicKey, now: Timestamp) -> Bool {
        // Bounds the map. Owners are named peers, so they are few.
        if owners.count > 2 * terms.boxCount { owners = owners.filter { !$0.value.isFull(now: now) } }
        return owners[owner, default: OwnerRates()].boxes.take(now: now) == nil
    }

    private mutating func list(_ box: BoxID, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard isHeld(box, by: link) else { return [.close(link)] }
        guard load(box, turn), let slots = boxes[box]?.slots else { return [.close(link)] }
        boxes[box]?.isAnnounced = false
        boxes[box]?.lateAt = nil
        let ids = slots.values.filter { $0.until > turn.now && !$0.isAnswer }.map(\.id).sorted()
        return [.transmit(link, .mailboxAnswer(.slots(box, Array(ids.prefix(Limits.slotListCount)))))]
    }

    /// Reads the slots of a box: once, and again after a pause while the disk does not give all slots.
    /// - Returns: whether any read has succeeded.
    private mutating func load(_ box: BoxID, _ turn: Turn) -> Bool {
        guard let known = boxes[box] else { return false }
        let isKnown = known.slots != nil
        if isKnown && known.reread == nil || known.reread.map({ turn.now < $0.at }) ?? false { return isKnown }
        let kept = turn.node.keptSlots(of: box)
        if kept?.isWhole ?? false {
            boxes[box]?.reread = nil
        } else if !turn.isLocked {
            let pause = known.reread.map { min(2 * $0.pause, Limits.reread.longest) } ?? Limits.reread.first
            boxes[box]?.reread = Reread(at: turn.now + pause, pause: pause)
        }
        guard let kept else { return isKnown }
        let new = kept.slots.filter { known.slots?[$0.id] == nil }
        boxes[box]?.slots = (known.slots ?? [:]).merging(new.map { ($0.id, $0) }) { first, _ in first }
        boxes[box]?.byteCount += new.reduce(0) { $0 + $1.byteCount }
        memoryByteCount += memory(of: new)
        for slot in new { slotsEnd = earliest(slotsEnd, slot.until) }
        if !new.isEmpty, isKnown || known.reread != nil {
            boxes[box]?.isAnnounced = false
            boxes[box]?.lateAt = turn.now
        }
        return true
    }

    /// Retries failed reads for linked owners and announces slots that were found late.
    private mutating func reread(_ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for box in boxes.filter({ $0.value.reread != nil || $0.value.lateAt != nil }).keys.sorted() {
            guard let known = boxes[box], let holder = holdersByOwner[known.record.owner] else { continue }
            if let due = known.reread, due.at <= turn.now {
                if turn.isLocked { boxes[box]?.reread?.at = turn.now + due.pause } else { _ = load(box, turn) }
            }
            guard boxes[box]?.lateAt != nil else { continue }
            boxes[box]?.lateAt = nil
            guard boxes[box]?.isAnnounced == false, boxes[box]?.slots?.isEmpty == false else { continue }
            boxes[box]?.isAnnounced = true
            result.append(.transmit(holder, .mailboxAnswer(.waiting(box))))
        }
        return result
    }

    private mutating func put(_ put: SlotPut, into box: BoxID, on link: LinkID, _ client: ClientID, _ turn: Turn)
        -> [NodeAction]
    {
        func answer(_ outcome: PutOutcome) -> [NodeAction] {
            if outcome != .stored { counted.refused += 1 }
            return [.transmit(link, .mailboxAnswer(.put(box, put.id, outcome)))]
        }
        guard SlotSize.byteCounts.contains(put.body.count), (put.keeping == .fortyFiveDays) == (put.kind == .notice),
            put.kind != .notice || put.body.count == SlotSize.byteCounts[0]
        else { return [.close(link)] }
        guard terms.isServing else { return answer(.notServing) }
        guard boxes[box] != nil else { return answer(.unknownBox) }
        guard turn.node.source(of: link).map({ sources.take($0, now: turn.now) }) ?? true,
            boxes[box]!.puts.take(now: turn.now) == nil
        else { return answer(.tooFast) }
        guard put.kind == .memory || !turn.isLocked && turn.node.hasRoom(client), load(box, turn),
            let slots = boxes[box]?.slots
        else { return answer(.unavailable) }
        // A repeated put: the answer was lost, or the put was replayed.
        if slots[put.id] != nil { return answer(.stored) }
        let isNotice = put.kind == .notice
        let alike = slots.values.count { ($0.kind == .notice) == isNotice }
        guard alike < (isNotice ? Limits.noticeCount : terms.slotCount),
            isNotice || boxes[box]!.byteCount + put.body.count <= terms.boxByteCount,
            put.kind != .memory || memoryByteCount + put.body.count <= terms.memoryByteCount
        else { return answer(.full) }
        // Notices are few and small, and must not wait for contents.
        guard put.kind != .disk || boxes[box]!.kibibytes.take(put.body.count / 1_024, now: turn.now) == nil else {
            return answer(.tooFast)
        }
        let time = isNotice ? put.keeping.milliseconds : min(put.keeping.milliseconds, terms.longest)
        let slot = KeptSlot(
            id: put.id, kind: put.kind, isAnswer: false, byteCount: put.body.count, keptAt: turn.now,
            until: turn.now + time)
        boxes[box]!.slots![put.id] = slot
        boxes[box]!.byteCount += slot.byteCount
        if put.kind == .memory { memoryByteCount += slot.byteCount }
        slotsEnd = earliest(slotsEnd, slot.until)
        counted.put += 1
        var result: [NodeAction] = [.mailbox(.keep(box, slot, put.body))] + answer(.stored)
        if let holder = holdersByOwner[boxes[box]!.record.owner], !boxes[box]!.isAnnounced {
            boxes[box]!.isAnnounced = true
            result.append(.transmit(holder, .mailboxAnswer(.waiting(box))))
        }
        return result
    }

    private mutating func take(_ tags: [SlotTag], from box: BoxID, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard tags.count <= Limits.slotTagCount else { return [.close(link)] }
        let isKnown = load(box, turn)
        if !isKnown, boxes[box] != nil { return [.close(link)] }
        var result: [NodeAction] = []
        // A repeated tag must not cost a second read of the disk.
        var seen: Set<SlotTag> = []
        for tag in tags where seen.insert(tag).inserted {
            let id = SlotID(tag)
            guard isKnown, let slot = boxes[box]?.slots?[id], slot.until > turn.now,
                isHeld(box, by: link) ? mayTake(slot, of: box, now: turn.now) : slot.kind == .notice
            else {
                result.append(.transmit(link, .mailboxAnswer(.absent(box, id))))
                continue
            }
            // `absent` would make a guest put its notice again, so a refused guest's link is closed.
            guard isHeld(box, by: link) || guests.take(turn.node.source(of: link), now: turn.now) else {
                return [.close(link)]
            }
            counted.taken += 1
            result.append(.mailbox(.give(link, box, slot, dwell: max(0, turn.now - slot.keptAt))))
        }
        return result
    }

    private mutating func mayTake(_ slot: KeptSlot, of box: BoxID, now: Timestamp) -> Bool {
        guard let owner = boxes[box]?.record.owner else { return false }
        return owners[owner, default: OwnerRates()].takes.take(max(1, slot.byteCount / Limits.takeUnit), now: now)
            == nil
    }

    private mutating func discard(
        _ tags: [SlotTag], of box: BoxID, _ answer: [UInt8], on link: LinkID, _ client: ClientID, _ turn: Turn
    ) -> [NodeAction] {
        guard tags.count <= Limits.slotTagCount, answer.count <= Limits.slotAnswerByteCount,
            answer.isEmpty || tags.count == 1
        else { return [.close(link)] }
        guard !turn.isLocked, load(box, turn) else { return [.close(link)] }
        let ids = tags.map(SlotID.init).filter { boxes[box]?.slots?[$0] != nil }
        guard !answer.isEmpty, let id = ids.first, var slot = boxes[box]?.slots?[id], slot.kind == .notice else {
            return discard(box, ids, on: link)
        }
        // One answer for each notice: more would be writes without a rate limit.
        guard !slot.isAnswer else { return [.transmit(link, .mailboxAnswer(.discarded(box, [id])))] }
        // The sender of the notice finds the answer in its place.
        slot.isAnswer = true
        boxes[box]?.byteCount += answer.count - slot.byteCount
        slot.byteCount = answer.count
        boxes[box]?.slots?[id] = slot
        return [
            .mailbox(.erase(box, [id])), .mailbox(.keep(box, slot, answer)),
            .transmit(link, .mailboxAnswer(.discarded(box, [id]))),
        ]
    }

    private mutating func discard(_ box: BoxID, _ named: [SlotID], on link: LinkID) -> [NodeAction] {
        let ids = Set(named).sorted()
        remove(ids, from: box)
        counted.discarded += UInt64(ids.count)
        let erased: [NodeAction] = ids.isEmpty ? [] : [.mailbox(.erase(box, ids))]
        return erased + [.transmit(link, .mailboxAnswer(.discarded(box, ids)))]
    }

    private mutating func remove(_ ids: [SlotID], from box: BoxID) {
        for id in ids {
            guard let slot = boxes[box]?.slots?.removeValue(forKey: id) else { continue }
            boxes[box]?.byteCount -= slot.byteCount
            if slot.kind == .memory { memoryByteCount -= slot.byteCount }
        }
    }

    /// The shell has slots of these boxes; the records that initialized this machine do not list them.
    package mutating func count(_ boxes: [BoxID], _ turn: Turn) { for box in boxes { _ = load(box, turn) } }

    // MARK: Time

    /// Destroys expired slots and the boxes of owners absent for ``Limits/boxSilence``, closes links of silent holders,
    /// and retries failed reads.
    package mutating func advance(_ client: ClientID, _ turn: Turn) -> [NodeAction] {
        let now = turn.now
        var result = reread(turn)
        for link in holders.keys.sorted() {
            guard let heardAt = holders[link]?.heardAt, now - heardAt >= Limits.mailboxSilence else { continue }
            forget(link)
            result.append(.close(link))
        }
        // Saved once a day for linked owners, so that a restart does not expire their boxes.
        var isChanged = false
        for (box, known) in boxes where now - known.savedAt >= .day && holdersByOwner[known.record.owner] != nil {
            boxes[box]?.record.seenAt = now
            boxes[box]?.savedAt = now
            isChanged = true
        }
        if isChanged { result.append(.save(client)) }
        let away = boxes.values.map(\.record).filter { holdersByOwner[$0.owner] == nil }
        let forgotten = away.filter { now - $0.seenAt >= Limits.boxSilence }.map(\.box).sorted()
        result += destroy(forgotten, client)
        guard let due = slotsEnd, due <= now else { return result }
        slotsEnd = nil
        for box in boxes.keys.sorted() {
            let over = boxes[box]?.slots?.values.filter { $0.until <= now }.map(\.id).sorted() ?? []
            if !over.isEmpty {
                remove(over, from: box)
                counted.expired += UInt64(over.count)
                result.append(.mailbox(.erase(box, over)))
            }
            slotsEnd = earliest(slotsEnd, boxes[box]?.slots?.values.map(\.until).min())
        }
        return result
    }
}
