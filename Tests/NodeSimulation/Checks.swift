import Cryptography
import Messaging
import NodeRuntime
import SimulatedDisk
import Simulation
import Store
import Transport

extension NodeSimulation {
    /// An authentic frame has arrived. Returns the frames for the node: the same one, unless the sender is hostile or a
    /// mistake is planted.
    func passed(_ bytes: [UInt8], from key: PublicKey, to machine: Machine) -> [[UInt8]] {
        journal.mix(bytes.count)
        if machine.isHostile {
            hostile.hears(bytes)
            if hostile.isEcho(bytes) { return [] }
        }
        if let mailbox, let said = mailbox.passed(bytes, from: key, to: machine, in: self) { return said }
        guard let owner = oracle.owners[key] else { return [bytes] }
        if machines[owner].isHostile, !machine.isHostile { return hostile.forge(bytes, from: key, to: machine.index) }
        guard let frame = try? FrameCodec.decode(bytes) else { return [bytes] }
        note("machine \(machine.index) <- machine \(owner): \("\(frame)".prefix(120))")
        switch frame {
        case .acknowledgement(let said):
            for id in said.stored { promised(id, by: key, owner) }
            for id in said.stored + said.held { oracle.arrived[id, default: []].insert(owner) }
            if options.mistake == .lostAcknowledgements { return [] }
        case .contents(var contents):
            if options.mistake == .droppedAgreement {
                for index in contents.indices { contents[index].content.agreement = nil }
                return [FrameCodec.encode(.contents(contents))]
            }
        case .mailbox(.keys(var keys)):
            count("keys of slices")
            if options.mistake == .ignoredDwell {
                // This defeats the receiver's own bound on the age, too.
                keys.present += 8
                return [FrameCodec.encode(.mailbox(.keys(keys)))]
            }
        default: break
        }
        return [bytes]
    }

    private func promised(_ id: MessageID, by inbox: PublicKey, _ machine: Int) {
        guard let text = oracle.texts[id], let sent = oracle.sent[text], !oracle.goneKeys.contains(inbox) else {
            return
        }
        count("acknowledged as stored")
        oracle.promises[machine, default: [:]][id] = NodeOracle.Promise(
            text: text, id: id, conversation: sent.conversation, inbox: inbox)
    }

    func saw(_ event: Event, _ machine: Machine, _ incarnation: Int) {
        let name = "\(event.kind)".prefix { $0 != "(" }
        count("event \(name)")
        journal.mix(machine.index)
        journal.mix(Int(event.at.milliseconds))
        for byte in name.utf8 { journal.mix(UInt64(byte)) }
        note("machine \(machine.index): \(event.kind)")
        guard !machine.isHostile else { return }
        if case .exploded = event.kind {
            // Checked after the explosion, which must destroy nothing else.
            time.plan(inMilliseconds: 0) { [unowned self] in checkLost(machine) }
        }
        guard let client = event.client else { return }
        switch event.kind {
        case .messageState(let id, .delivered, _): checkDelivered(id, machine)
        case .exploded: if let conversation = event.conversation { sawExplosion(conversation, client, machine) }
        case .deletionReceipt(let member):
            time.plan(inMilliseconds: 0) { [unowned self] in checkReceipt(of: member, at: machine) }
        case .explosionScheduled(let end):
            if let before = oracle.schedules[client], before < end {
                violation("I5 machine \(machine.index) shows an explosion put off")
            }
            oracle.schedules[client] = end
        case .joined:
            if oracle.cancelled.contains(client) {
                violation("machine \(machine.index) has entered by a join that was given up")
            }
        default: break
        }
        machine.ask { [unowned self] node in
            switch event.kind {
            case .message(let id): oracle.received(id, client, machine, node, self)
            case .lifetimeAgreed(_, let id, _):
                if let conversation = event.conversation { oracle.agreed(id, conversation, machine, node, self) }
            case .joined:
                guard let one = try? node.conversation(client.description) else { return }
                if isHostile(one.record.genesis.creator) { count("joined a hostile creator") }
                oracle.enters(one, machine)
            case .memberJoined, .peerOnline:
                guard let one = try? node.conversation(client.description), one.isCreator else { return }
                oracle.known[one.conversation] = one.record.members
            default: break
            }
        }
    }

    private func sawExplosion(_ conversation: ConversationID, _ client: ClientID, _ machine: Machine) {
        let inbox = oracle.inboxes[client]
        if let inbox, !isHostile(inbox.creator), !oracle.ended.contains(conversation) {
            violation("E1 machine \(machine.index) has exploded what its creator has not ended")
        }
        // An unknown conversation may be a hostile creator's, with the id of a live one.
        if inbox != nil || !oracle.isKnown(conversation, machine) {
            let ended = NodeOracle.Ended(conversation: conversation, creator: inbox?.creator)
            oracle.over[machine.index, default: []].insert(ended)
        }
        // The key was recorded while the inbox existed.
        oracle.destroyed(inbox?.key, on: machine)
    }

    func check(_ machine: Machine) {
        guard machine.isUp, !machine.isHostile, !machine.disk.hasLostPower else { return }
        count("checks")
        let locked = machine.ask { $0.status().isLocked } ?? true
        guard !locked else { return }
        machine.ask { [unowned self] node in
            // The node may have stopped before it reported the join.
            for listed in list(machine) where oracle.inboxes[listed.client] == nil {
                if let one = try? node.conversation(listed.client.description) { oracle.enters(one, machine) }
            }
        }
        for listed in list(machine) where oracle.isOver(listed.id, listed.client, machine) {
            violation("I5 machine \(machine.index) has a conversation that is over there")
        }
        checkLost(machine)
        checkPromises(machine)
        checkBounds(machine)
    }

    /// A conversation ends only by its creator's explosion, or when its member leaves.
    private func checkLost(_ machine: Machine) {
        // A restored disk lacks newer conversations.
        guard options.mistake != .restoredBackup, machine.isUp, !machine.disk.hasLostPower, !machine.diskHasFailed,
            machine.ask({ $0.status().isLocked }) == false
        else { return }
        let clients = Set(list(machine).map(\.client))
        for client in oracle.inboxes.keys.sorted() where !clients.contains(client) {
            guard let inbox = oracle.inboxes[client], inbox.machine == machine.index, !isHostile(inbox.creator),
                !oracle.ended.contains(inbox.conversation)
            else { continue }
            violation("I1 machine \(machine.index) has lost a conversation that nobody has ended")
        }
    }

    /// A member that signed a deletion receipt must no longer have its copy, and no other member can sign it.
    private func checkReceipt(of member: PublicKey, at machine: Machine) {
        guard options.mistake == nil, let owner = oracle.owners[member], !machines[owner].isHostile else { return }
        if list(machines[owner]).contains(where: { oracle.inboxes[$0.client]?.key == member }) {
            violation("E1 machine \(machine.index) was told that machine \(owner) has destroyed what it still has")
        }
    }

    private func checkPromises(_ machine: Machine) {
        let promises = oracle.promises[machine.index] ?? [:]
        let clients = list(machine).map(\.client)
        for id in promises.keys.sorted() {
            guard let promise = promises[id] else { continue }
            let broken = machine.ask { node -> String? in
                // A member that was removed and has joined again has two inboxes of one conversation.
                let client = clients.first { (try? node.conversation($0.description))?.key.publicKey == promise.inbox }
                guard let client else {
                    // The conversation ended while the node was off, without an event.
                    if (try? node.explosion(promise.conversation.description)) != nil { return nil }
                    // By a clock set far ahead, even the tombstone has expired.
                    let ends = oracle.inboxes.filter { $0.value.key == promise.inbox }.keys.compactMap {
                        oracle.schedules[$0]
                    }
                    let isForgotten = ends.contains { $0 + Limits.tombstoneLifetime <= node.currentTime }
                    return isForgotten ? nil : "its conversation is gone"
                }
                let key = NodeOracle.Key(client: client, text: promise.text)
                guard let found = node.message(id, client: client) else {
                    guard let end = oracle.ends[key] else { return nil }
                    return end <= node.currentTime ? nil : "it is not there"
                }
                if found.message.content.plainText != promise.text { return "it is another one" }
                if !found.isStored { return "it is not on the disk" }
                return nil
            }
            if let reason = broken {
                violation("I1 machine \(machine.index) has acknowledged \(promise.text.prefix(12)), and \(reason)")
            }
        }
    }

    private func checkBounds(_ machine: Machine) {
        func bound(_ name: String, _ value: Int, _ limit: Int) {
            if value > limit { violation("I7 machine \(machine.index), \(name): \(value) of \(limit)") }
        }
        bound("connections", machine.transport?.connectionCount ?? 0, 400)
        if let service = machine.ask({ $0.mailboxService }) {
            bound("boxes", service.counts.boxes, Limits.boxCount)
            bound("bytes of boxes in memory", service.counts.memoryByteCount, Limits.mailboxMemoryByteCount)
            for box in service.boxes {
                bound("slots of a box", box.slotCount ?? 0, Limits.slotCount + Limits.noticeCount)
                bound(
                    "bytes of a box", box.byteCount, Limits.boxByteCount + Limits.noticeCount * SlotSize.byteCounts[0])
            }
        }
        for excess in list(machine).compactMap({ machine.conversation($0.text) }).flatMap(\.excesses) {
            violation("I7 machine \(machine.index), \(excess)")
        }
    }

    /// An attacker with the disk and its key file finds no key of an ended conversation and no message without an
    /// agreement. It finds no expired message either, apart from the time that overwriting takes.
    /// - Parameter late: messages that were late while ``acts(_:)`` was false, and must be gone by now.
    func inspectDisk(_ machine: Machine, again late: Set<MessageID>? = nil) {
        guard machine.isUp, !machine.isHostile, !machine.diskHasFailed, machine.startedAt + 25_000 < milliseconds,
            machine.unlockedAt + 25_000 < milliseconds,
            let now = machine.ask({ $0.status().isLocked ? nil : $0.currentTime })
        else { return late == nil ? () : count("late messages not looked for again") }
        count("stolen disks")
        var found: Set<MessageID> = []
        let copy = machine.disk.platter.durableCopy()
        do {
            let store = try Store.open(home: Machine.home, fileSystem: copy, now: 0, committingOn: .caller)
            defer { store.close() }
            try store.unlock(passphrase: nil)
            if options.mistake == .writtenMemory { try writeMemory(of: machine, into: store, now) }
            for row in store.liveRows() {
                let inbox = identity(of: row, in: store)
                if let inbox, oracle.goneKeys.contains(inbox) {
                    violation("I5 the disk of machine \(machine.index) has the key of a conversation that is over")
                }
                for stored in try store.list(row, now: 0) {
                    if mailbox?.index == machine.index, inspect(slot: stored.payload, machine, now) { continue }
                    guard let (message, _) = try? StoredCodec.decodeMessage(stored.payload) else {
                        violation("the disk of machine \(machine.index) lists what is no message")
                        continue
                    }
                    inspect(message, of: inbox, machine, now, late: &found)
                }
                // Reactions and file chunks are hidden records, not messages.
                var hidden: [Bytes16] = []
                try store.visitHidden(row) { id, _ throws(StoreError) in
                    hidden.append(id)
                    return true
                }
                for id in hidden.sorted() {
                    guard let bytes = try store.read(row, id: id, now: 0),
                        let (message, _) = try? StoredCodec.decodeMessage(bytes)
                    else { continue }
                    inspect(message, of: inbox, machine, now, late: &found)
                }
            }
        } catch { violation("the disk of machine \(machine.index) cannot be read: \(error)") }
        for id in (acts(machine) ? found : found.intersection(late ?? [])).sorted() {
            violation("I3 the disk of machine \(machine.index) has the message \(id) after its end")
        }
        if late == nil, !found.isEmpty, !acts(machine) {
            time.plan(inMilliseconds: 11_000) { [unowned self] in inspectDisk(machine, again: found) }
        }
    }

    /// Whether the node has acted on its present time. It sees a forward step of the clock within 10 s, confirms it 60 s
    /// later, even by a reading of ours, and has its next turn within 10 s more.
    private func acts(_ machine: Machine) -> Bool {
        guard let steppedAt = machine.steppedAt, machine.startedAt <= steppedAt else { return true }
        return !(60_000...80_000).contains(milliseconds - steppedAt)
    }

    func identity(of row: RowID, in store: Store) -> PublicKey? {
        if let key = try? SecretKey(try store.secret(row, label: "identity key 0")) { return key.publicKey }
        return nil
    }

    /// A stored message must have an agreement signed by all members, and end when its terms say, whatever the node
    /// reports.
    private func inspect(
        _ message: Message, of inbox: PublicKey?, _ machine: Machine, _ now: Timestamp, late: inout Set<MessageID>
    ) {
        let name = "the disk of machine \(machine.index)"
        guard let id = message.content.agreement else {
            return violation("I4 \(name) has a message without an agreement")
        }
        guard let agreement = oracle.agreements[id] ?? learned(id, of: inbox, machine) else {
            return violation("I4 \(name) has a message under an agreement that nobody has seen")
        }
        guard let end = message.expiresAt else { return violation("I4 \(name) has a message without an end") }
        if end + 20 * .second < now { late.insert(message.content.id) }
        // A clock that was set back while its node was off keeps messages longer by that much.
        let excess = end - now - agreement.terms.longest - machine.lostTime
        if excess > 0 { violation("I3 \(name) keeps a message for \(excess) ms more than was agreed") }
    }

    private func learned(_ id: AgreementID, of inbox: PublicKey?, _ machine: Machine) -> Agreement? {
        let all = list(machine).compactMap { machine.conversation($0.client.description) }
        return oracle.agreement(id, of: all.first { $0.key.publicKey == inbox }, machine, self)
    }

    private func writeMemory(of machine: Machine, into store: Store, _ now: Timestamp) throws {
        guard let row = store.liveRows().last else { return }
        let read: [Node.ReadMessage] = list(machine).flatMap { listed in
            machine.ask { node in (try? node.read(listed.text, last: nil, after: nil))?.1 ?? [] } ?? []
        }
        for one in read where !one.isStored && one.message.content.type == .text {
            try store.append(
                row, id: one.message.content.id.value, tier: .oneHour, expiresAt: now.milliseconds + 30 * .minute,
                payload: StoredCodec.encode(one.message, arrivedAt: now))
        }
    }

    private struct Holder {
        let machine: Machine
        let conversation: Conversation
        let now: Timestamp

        func lists(_ other: Holder) -> Bool {
            conversation.currentMembers.contains { $0.key == other.conversation.key.publicKey }
        }
    }

    private func holders() -> [(ConversationID, [Holder])] {
        var found: [ConversationID: [Holder]] = [:]
        for machine in machines where !machine.isHostile {
            guard let now = machine.ask({ $0.currentTime }) else { continue }
            for listed in list(machine) {
                guard let one = machine.conversation(listed.text) else { continue }
                found[listed.id, default: []].append(Holder(machine: machine, conversation: one, now: now))
            }
        }
        return found.keys.sorted().map { ($0, found[$0] ?? []) }
    }

    /// Whether an address that these members have of the key is the machine's.
    private func finds(_ key: PublicKey, of machine: Machine, in members: [Member]) -> Bool {
        let known = members.first { $0.key == key }?.endpoints ?? []
        return known.contains { roads.hidden.contains(machine.index) ? $0.relay != nil : $0 == machine.endpoint }
    }

    private func finds(_ one: Holder, _ other: Holder) -> Bool {
        finds(other.conversation.key.publicKey, of: other.machine, in: one.conversation.record.members)
    }

    /// Tokens change daily: nodes whose clocks are further apart do not find each other.
    private func areNear(_ one: Timestamp, _ other: Timestamp) -> Bool { abs(one - other) < 12 * .hour }

    /// Whether the clocks of two running machines let them find each other.
    func areNear(_ one: Machine, _ other: Machine) -> Bool {
        guard let first = one.lastSeenNow, let second = other.lastSeenNow else { return false }
        return areNear(first, second)
    }

    func unrest() -> String? {
        for (id, all) in holders() {
            for holder in all { if let reason = unrest(holder) { return reason } }
            // A hostile creator may show each member something else: see ``NodeOracle``.
            let holders = all.filter { !isHostile($0.conversation.record.genesis.creator) }
            for (index, one) in holders.enumerated() {
                for other in holders[..<index] {
                    guard areNear(one.now, other.now), one.lists(other), other.lists(one),
                        finds(one, other) || finds(other, one)
                    else { continue }
                    guard let reason = one.conversation.unrest(with: other.conversation) else { continue }
                    return "I6 machines \(one.machine.index) and \(other.machine.index) \(reason)"
                }
            }
            guard let explosion = oracle.explosions[id],
                (oracle.over[explosion.machine] ?? []).contains(where: { $0.conversation == id })
            else { continue }
            let creator = machines[explosion.machine]
            let told = explosion.isTraceless ? [] : oracle.known[id] ?? []
            for holder in holders where holder.machine !== creator {
                let record = holder.conversation.record
                guard let now = creator.lastSeenNow, areNear(now, holder.now), !record.isRemoved,
                    finds(holder.conversation.key.publicKey, of: holder.machine, in: told)
                        || finds(record.genesis.creator, of: creator, in: record.members),
                    // By its clock that time may still be to come.
                    record.schedule.map({ $0.expiresAt <= holder.now }) ?? true
                else { continue }
                return "machine \(holder.machine.index) still has a conversation that \(creator.index) exploded"
            }
        }
        return nil
    }

    /// Conditions that every member reaches without its peers.
    private func unrest(_ holder: Holder) -> String? {
        let name = "machine \(holder.machine.index)"
        let record = holder.conversation.record
        if let schedule = record.schedule, schedule.expiresAt + 15 * .second < holder.now {
            return "\(name) has a conversation after its time"
        }
        guard isHostile(record.genesis.creator) else { return nil }
        if !record.genesis.isSignatureValid || !record.group.isValid(for: record.genesis) {
            return "\(name) has a state that its creator has not signed"
        }
        let known = Set(
            record.members.map(\.key) + record.departures.map(\.member) + [holder.conversation.key.publicKey])
        if !record.isRemoved, !known.isSuperset(of: record.group.members) {
            return "\(name) does not know everybody who is in its state"
        }
        return nil
    }
}
