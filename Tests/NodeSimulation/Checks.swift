import Messaging
import NodeRuntime
import Primitives
import SimulatedDisk
import Store
import Transport
import Wire

/// What is looked at as it happens, after each start, and at the end.
extension NodeSimulation {
    // MARK: As it happens

    /// A frame has arrived and is authentic. What the node is given is what its sender has said, unless that is hostile,
    /// or a mistake is planted.
    func passed(_ bytes: [UInt8], from key: PublicKey, to machine: Machine) -> [[UInt8]] {
        trace.mix(bytes.count)
        if machine.isHostile { hostile.hears(bytes) }
        guard let owner = oracle.owners[key] else { return [bytes] }
        if machines[owner].isHostile, !machine.isHostile { return hostile.forge(bytes, from: key) }
        guard let frame = try? FrameCodec.decode(bytes) else { return [bytes] }
        note("machine \(machine.index) <- machine \(owner): \("\(frame)".prefix(120))")
        switch frame {
        case .acknowledgement(let id, let isStored):
            if isStored { promised(id, by: key, owner) }
            if options.mistake == .lostAcknowledgements { return [] }
        case .content(var content, let age):
            if options.mistake == .droppedAgreement {
                content.agreement = nil
                return [FrameCodec.encode(.content(content, age: age))]
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
            text: text,
            id: id,
            conversation: sent.conversation,
            inbox: inbox
        )
    }

    /// A node tells its user.
    func saw(_ event: Event, _ machine: Machine, _ incarnation: Int) {
        let name = "\(event.kind)".prefix { $0 != "(" }
        count("event \(name)")
        trace.mix(machine.index)
        trace.mix(event.at.milliseconds == 0 ? 0 : Int(event.at.milliseconds))
        for byte in name.utf8 { trace.mix(UInt64(byte)) }
        note("machine \(machine.index): \(event.kind)")
        guard !machine.isHostile, let client = event.client else { return }
        machine.ask { [unowned self] node in
            switch event.kind {
            case .message(let id): oracle.received(id, client, machine, node, self)
            case .lifetimeAgreed(_, let id, _):
                if let conversation = event.conversation { oracle.agreed(id, conversation, machine, node, self) }
            case .exploded:
                guard let conversation = event.conversation else { return }
                oracle.over[machine.index, default: []].insert(conversation)
                // The key that must be gone is known from the time when it was there.
                oracle.destroyed(oracle.keys[client], on: machine)
            case .joined:
                if let conversation = event.conversation,
                    let one = try? node.conversation(conversation.description)
                {
                    oracle.owners[one.key.publicKey] = machine.index
                    oracle.keys[client] = one.key.publicKey
                }
            case .explosionScheduled(let end):
                let key = NodeOracle.Key(client: client, text: "")
                if let before = oracle.schedules[key], before < end {
                    violation("I5 machine \(machine.index) shows an explosion put off")
                }
                oracle.schedules[key] = end
            default: break
            }
        }
    }

    // MARK: After a start

    func check(_ machine: Machine) {
        guard machine.isUp, !machine.isHostile, !machine.disk.hasLostPower else { return }
        count("checks")
        let locked = machine.ask { $0.status().isLocked } ?? true
        guard !locked else { return }
        for listed in list(machine) where oracle.over[machine.index]?.contains(listed.id) == true {
            violation("I5 machine \(machine.index) has a conversation that is over there")
        }
        checkPromises(machine)
        checkBounds(machine)
    }

    private func checkPromises(_ machine: Machine) {
        let promises = oracle.promises[machine.index] ?? [:]
        let clients = list(machine).map(\.client)
        for id in promises.keys.sorted() {
            guard let promise = promises[id] else { continue }
            let broken = machine.ask { node -> String? in
                // A member that was removed and has joined again has two inboxes of one conversation.
                let client = clients.first {
                    (try? node.conversation($0.description))?.key.publicKey == promise.inbox
                }
                guard let client else {
                    // It came to its end while the node was not there to say so.
                    let tombstone = (try? node.explosion(promise.conversation.description)) ?? nil
                    return tombstone == nil ? "its conversation is gone" : nil
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
            if case .some(.some(let reason)) = broken {
                violation("I1 machine \(machine.index) has acknowledged \(promise.text.prefix(12)), and \(reason)")
            }
        }
    }

    private func checkBounds(_ machine: Machine) {
        func bound(_ name: String, _ value: Int, _ limit: Int) {
            if value > limit { violation("I7 machine \(machine.index), \(name): \(value) of \(limit)") }
        }
        bound("connections", machine.transport?.connectionCount ?? 0, 400)
        let found = machine.ask { node in list(machine).compactMap { try? node.conversation($0.text) } } ?? []
        for one in found {
            bound("held bytes", one.heldByteCount, Limits.memoryByteCount)
            bound("outbox", one.outboxCount, Limits.outboxCount)
            let record = one.savedRecord
            bound("known agreements", record.lifetime.known.count, Limits.agreementCount)
            bound("whole agreements", record.lifetime.earlier.count, Limits.agreementRecordCount)
            bound("epoch floors", record.lifetime.floors.count, Limits.epochFloorCount)
            bound("invites", record.issuer?.invites.count ?? 0, Limits.inviteCount)
            bound("members", one.currentMembers.count + 1, Limits.memberCount)
        }
    }

    // MARK: The disk of a thief

    /// What somebody finds who has the disk and its key file: no key of a conversation that is over, no message past its
    /// end, but for the time it takes to overwrite them.
    func inspectDisk(_ machine: Machine) {
        guard machine.isUp, !machine.isHostile, !machine.diskHasFailed,
            machine.startedAt + 25_000 < time.milliseconds, machine.unlockedAt + 25_000 < time.milliseconds,
            let now = machine.ask({ $0.status().isLocked ? nil : $0.currentTime }) ?? nil
        else { return }
        count("stolen disks")
        let copy = machine.disk.platter.durableCopy()
        do {
            let store = try Store.open(home: Machine.home, fileSystem: copy, now: 0, committingOn: .caller)
            defer { store.close() }
            try store.unlock(passphrase: nil)
            for row in store.liveRows() {
                if let key = try? SecretKey(try store.secret(row, label: "identity key 0")),
                    oracle.goneKeys.contains(key.publicKey)
                {
                    violation("I5 the disk of machine \(machine.index) has the key of a conversation that is over")
                }
                for stored in try store.list(row, last: nil, after: nil, now: 0) {
                    guard let (message, _) = try? StoredCodec.decodeMessage(stored.payload),
                        let end = message.expiresAt, end + 20 * .second < now
                    else { continue }
                    violation(
                        "I3 the disk of machine \(machine.index) has a message \(now - end) ms after its end"
                    )
                }
            }
        } catch {
            violation("the disk of machine \(machine.index) cannot be read: \(error)")
        }
    }

    // MARK: At rest

    private struct Holder {
        let machine: Machine
        let conversation: ConversationStateMachine
        let now: Timestamp

        /// Where this one looks for the other, it is.
        func finds(_ other: Holder, behindNAT isHidden: Bool) -> Bool {
            let known = conversation.record.members.first { $0.key == other.conversation.key.publicKey }
            guard let endpoints = known?.endpoints else { return false }
            return isHidden ? endpoints.contains { $0.relay != nil } : endpoints.contains(other.machine.endpoint)
        }

        func lists(_ other: Holder) -> Bool {
            conversation.currentMembers.contains { $0.key == other.conversation.key.publicKey }
        }
    }

    /// Conversations by their id, with those machines that hold them and mean well.
    private func holders() -> [(ConversationID, [Holder])] {
        var found: [ConversationID: [Holder]] = [:]
        for machine in machines where !machine.isHostile {
            guard let now = machine.ask({ $0.currentTime }) else { continue }
            for listed in list(machine) {
                guard let one = machine.ask({ try? $0.conversation(listed.text) }) ?? nil else { continue }
                found[listed.id, default: []].append(Holder(machine: machine, conversation: one, now: now))
            }
        }
        return found.keys.sorted().map { ($0, found[$0] ?? []) }
    }

    private func finds(_ one: Holder, _ other: Holder) -> Bool {
        one.finds(other, behindNAT: roads.hidden.contains(other.machine.index))
    }

    /// Tokens are a day's: whose clocks are further apart do not find each other.
    private func areNear(_ one: Timestamp, _ other: Timestamp) -> Bool { abs(one - other) < 12 * .hour }

    /// Why the machines have not come to rest; `nil` when they have.
    func unrest() -> String? {
        for (id, holders) in holders() {
            for (index, one) in holders.enumerated() {
                for other in holders[..<index] {
                    guard areNear(one.now, other.now), one.lists(other), other.lists(one),
                        finds(one, other) || finds(other, one)
                    else { continue }
                    if let reason = unrest(one, other) ?? unrest(other, one) { return reason }
                }
            }
            if let explosion = oracle.explosions[id], oracle.over[explosion.machine]?.contains(id) == true {
                let creator = machines[explosion.machine]
                for holder in holders where holder.machine !== creator {
                    guard let now = creator.lastSeenNow, areNear(now, holder.now),
                        [holder.machine, creator].contains(where: {
                            explosion.places[$0.index] == $0.place && !roads.hidden.contains($0.index)
                        }),
                        !holder.conversation.record.isRemoved,
                        // By its clock that time may still be to come.
                        holder.conversation.record.schedule.map({ $0.expiresAt <= holder.now }) ?? true
                    else { continue }
                    return "machine \(holder.machine.index) still has a conversation that \(creator.index) exploded"
                }
            }
        }
        return nil
    }

    private func unrest(_ one: Holder, _ other: Holder) -> String? {
        let names = "machines \(one.machine.index) and \(other.machine.index)"
        let key = other.conversation.key.publicKey
        guard one.conversation.isOnline(key) else { return "\(names) have no link" }
        let waiting = one.conversation.outbox(to: key).count
        if waiting > 0 { return "machine \(one.machine.index) has \(waiting) for machine \(other.machine.index)" }
        if one.conversation.agreement?.id != other.conversation.agreement?.id {
            return "I6 \(names) have different agreements"
        }
        if one.conversation.groupDigest != other.conversation.groupDigest {
            return "\(names) know different things of their group"
        }
        return nil
    }
}
