import Cryptography
import Messaging
import NIOCore
import NodeRuntime
import Simulation

extension NodeSimulation {
    func useAndGoOn(_ machine: Machine) {
        guard !isCalm else { return }
        if machine.isUp { use(machine) }
        let pause = chance(5) ? roll(30_000) : 50 + roll(1_500)
        time.plan(inMilliseconds: pause) { [unowned self] in useAndGoOn(machine) }
    }

    struct Listed {
        var client: ClientID
        var id: ConversationID
        var isCreator: Bool
        var text: String { id.description }
    }

    func list(_ machine: Machine) -> [Listed] {
        machine.ask { node -> [Listed] in
            ((try? node.conversations()) ?? []).map { one in
                switch one {
                case .awake(let machine):
                    Listed(client: machine.client, id: machine.conversation, isCreator: machine.isCreator)
                case .asleep(let summary):
                    Listed(client: summary.client, id: summary.conversation, isCreator: summary.isCreator)
                }
            }
        } ?? []
    }

    private func use(_ machine: Machine) {
        if machine.ask({ $0.status().isLocked }) == true {
            if chance(20) { unlock(machine) }
            return
        }
        if chance(3) { return cancelJoin(machine) }
        let listed = list(machine)
        if listed.count(where: { $0.isCreator }) < 2, !machine.isHostile || hostilesCreate,
            chance(listed.isEmpty ? 50 : machine.isHostile ? 15 : 3)
        {
            return create(machine)
        }
        guard let conversation = pick(listed) else { return }
        var choice = roll(1_000)
        let isAsked = machine.conversation(conversation.text)?.pendingProposal?.isOurs == false
        if isAsked, chance(60) { choice = 560 }
        switch choice {
        case ..<465: send(machine, conversation)
        case ..<480: sendFile(machine, conversation)
        case ..<560: propose(machine, conversation)
        case ..<680:
            command(machine, "accepted") { node in
                let open = try node.conversation(conversation.text).pendingProposal?.proposal.id
                if let open { _ = try node.accept(conversation.text, only: open) }
            }
        case ..<690: command(machine, conversation, "rejected") { try $0.reject(&$1) }
        case ..<710: command(machine, conversation, "withdrawn") { try $0.withdraw(&$1) }
        case ..<735:
            var policies: [LifetimePolicy] = [.ask, .refuse, .acceptUpTo(.oneDay), .acceptUpTo(.thirtyDays)]
            if mailbox != nil { policies[3] = .acceptUpTo(.thirtyDays, mailbox: .disk) }
            let policy = one(of: policies)
            command(machine, conversation, "policies") { $0.setPolicy(policy, &$1) }
        case ..<740:
            let cap = one(of: LifetimeCap.set)
            command(machine, conversation, "caps") { $0.setCap(cap, &$1) }
        case ..<750:
            command(machine, conversation, "closed") { $0.close(&$1) }
            oracle.closed(conversation.client)
        case ..<870: read(machine, conversation)
        case ..<890: react(machine, conversation)
        case ..<910: lockOrSleep(machine, conversation)
        case ..<925: nameOrLock(machine, conversation)
        case ..<955: invite(machine, conversation)
        case ..<960: revoke(machine, conversation)
        case ..<968: removeSomebody(machine, conversation)
        case ..<984: explode(machine, conversation)
        case ..<987: leave(machine, conversation)
        case ..<993:
            command(machine, "retried") { node in
                if let item = try node.outbox().first { _ = try node.retryMessage(item.entry.message.description) }
            }
        default:
            command(machine, "cancelled") { node in
                if let item = try node.outbox().first { _ = try node.cancelMessage(item.entry.message.description) }
            }
        }
    }

    func command(_ machine: Machine, _ name: String, _ body: (isolated Node) throws -> Void) {
        nonisolated(unsafe) let body = body
        machine.ask { [unowned self] node in
            do {
                try body(node)
                count(name)
                note("machine \(machine.index): \(name)")
            } catch { note("machine \(machine.index): \(name) \(error)") }
        }
    }

    private func command(
        _ machine: Machine, _ conversation: Listed, _ name: String, _ body: (Conversation, inout Turn) throws -> Void
    ) {
        nonisolated(unsafe) let body = body
        command(machine, name) { node in
            try node.command(conversation.text) { one, turn throws(CommandError) in
                do { try body(one, &turn) } catch {
                    guard let error = error as? CommandError else { preconditionFailure("\(error)") }
                    throw error
                }
            }
        }
    }

    private func create(_ machine: Machine) {
        // A name that is already an alias on the machine is refused, so names are unique.
        create(machine, name: "c\(milliseconds)") { [unowned self] listed in
            count(machine.isHostile ? "conversations of a hostile creator" : "conversations")
            for _ in 0..<1 + roll(3) {
                time.plan(inMilliseconds: roll(3_000)) { [unowned self] in invite(machine, listed) }
            }
        }
    }

    func create(_ machine: Machine, name: String, _ whenMade: @escaping (Listed) -> Void) {
        let made = machine.ask { try? $0.createConversation(name: name, profile: "p\(machine.index)") }
        machine.when(made) { [unowned self] made in
            guard let conversation = machine.conversation(made.client.description) else { return }
            oracle.enters(conversation, machine)
            if machine.isHostile { hostile.makes(conversation) }
            whenMade(Listed(client: conversation.client, id: conversation.conversation, isCreator: true))
        }
    }

    private func invite(_ machine: Machine, _ conversation: Listed) {
        guard conversation.isCreator, machine.isUp else { return }
        let isSingleUse = chance(60)
        var guests = [pick(people)]
        if chance(30) { guests += [pick(people), pick(people)] }
        let invited = guests.compactMap { $0 }.filter { $0 !== machine }
        let made = machine.ask { try? $0.invite(conversation.text, lifetime: .day, singleUse: isSingleUse) }
        machine.when(made) { [unowned self] _, slug in
            for guest in invited { time.plan(inMilliseconds: 1 + roll(4_000)) { [unowned self] in join(guest, slug) } }
        }
    }

    private func revoke(_ machine: Machine, _ conversation: Listed) {
        guard conversation.isCreator else { return }
        let invites = machine.conversation(conversation.text)?.invites?.invites ?? []
        guard chance(60), let invite = pick(invites)?.id else {
            return command(machine, "revoked all invites") { try $0.revokeInvites(conversation.text) }
        }
        command(machine, "revoked invites") { try $0.revokeInvite(conversation.text, invite.description) }
    }

    /// A user cancels a join: no conversation may be entered later.
    private func cancelJoin(_ machine: Machine) {
        let joins = machine.ask { node in ((try? node.joins()) ?? []).map(\.client) }
        guard let client = pick(joins ?? []) else { return }
        command(machine, "cancelled joins") { [unowned self] node in
            try node.cancelJoin(client.description)
            // With a failing disk the inbox may come back.
            if !machine.diskHasFailed, !network.mute.contains(machine.index) { oracle.cancelled.insert(client) }
        }
    }

    private func join(_ machine: Machine, _ slug: String) {
        guard machine.isUp, list(machine).count < 6 else { return }
        machine.ask { [unowned self] node in if ((try? node.joins()) ?? []).count < 4 { join(machine, node, slug) } }
    }

    func join(_ machine: Machine, _ node: isolated Node, _ slug: String) {
        guard let client = try? node.join(slug, profile: "p\(machine.index)") else { return }
        count("joins")
        let key = ((try? node.joins()) ?? []).first { $0.client == client }?.key
        if let key { oracle.owners[key.publicKey] = machine.index }
        if machine.isHostile, let key { hostile.keys[key.publicKey] = key }
    }

    private func nameOrLock(_ machine: Machine, _ conversation: Listed) {
        let name = "name \(roll(100))"
        switch roll(3) {
        case 0: command(machine, conversation, "renamed") { try $0.rename(name, &$1) }
        case 1: command(machine, conversation, "profiles") { try $0.setProfile(name, &$1) }
        default:
            let isLocked = chance(40)
            command(machine, conversation, "conversation locks") { try $0.setLocked(isLocked, &$1) }
        }
    }

    private func removeSomebody(_ machine: Machine, _ conversation: Listed) {
        guard conversation.isCreator else { return }
        let members = machine.conversation(conversation.text)?.currentMembers.map(\.key).sorted() ?? []
        guard let member = pick(members) else { return }
        command(machine, "removed members") { node in
            try node.removeMember(conversation.text, InboxID(member).description)
        }
    }

    private func explode(_ machine: Machine, _ conversation: Listed) {
        guard conversation.isCreator else { return }
        let isTraceless = chance(15)
        let after: Milliseconds? = chance(50) ? 1_000 + roll(60_000) : nil
        command(machine, after == nil ? "exploded" : "scheduled explosions") { [unowned self] node in
            // Also if it fails, because it may have taken effect in part.
            oracle.ended.insert(conversation.id)
            let record = (try? node.conversation(conversation.text))?.record
            _ = try node.explode(conversation.text, after.map { .after($0) } ?? .now, isTraceless: isTraceless)
            if let record { oracle.known[conversation.id] = record.members }
            oracle.explosions[conversation.id] = NodeOracle.Explosion(
                machine: machine.index, isTraceless: isTraceless || record?.schedule?.isTraceless ?? false)
        }
    }

    private func leave(_ machine: Machine, _ conversation: Listed) {
        guard chance(40) else { return }
        command(machine, "left") { [unowned self] node in
            let gone = try? node.conversation(conversation.text).key.publicKey
            do throws(NodeError) { _ = try node.leave(conversation.text) } catch {
                oracle.destroyed(gone, on: machine, isCertain: false)
                throw error
            }
            // If the power fails meanwhile, the explosion was not reported.
            oracle.destroyed(gone, on: machine, isCertain: !network.mute.contains(machine.index))
        }
    }

    func send(_ machine: Machine, _ conversation: Listed) {
        let text = "m\(nextText)" + (chance(2) ? String(repeating: ".", count: Int(roll(30_000))) : "")
        nextText += 1
        let at = time.milliseconds
        var client: ClientID?
        let made = machine.ask { node -> EventLoopFuture<Messaging.MessageID>? in
            let promise = node.loop.makePromise(of: Void.self)
            let outcome = try? node.send(conversation.text, texts: [text]) { refused in
                if let error = refused.values.first { promise.fail(error) } else { promise.succeed() }
            }
            guard case .success(let sent)? = outcome?.first else {
                promise.fail(NodeError.stopping)
                return nil
            }
            client = sent.client
            return promise.futureResult.map { sent.message }
        }
        machine.when(made) { [unowned self] id in
            guard let client, let made = machine.ask({ $0.message(id, client: client) }) else { return }
            count(made.isStored ? "sent under an agreement" : "sent")
            guard !machine.isHostile else { return }
            oracle.sent[text] = NodeOracle.Sent(
                machine: machine.index, conversation: conversation.id, content: made.message.content, time: at)
            oracle.texts[id] = text
        }
    }

    private func propose(_ machine: Machine, _ conversation: Listed) {
        let lifetime = one(of: Lifetime.allCases)
        let isKept = lifetime != .ephemeral
        let terms = LifetimeTerms(
            lifetime, attachment: chance(15) ? one(of: Lifetime.allCases) : nil,
            unopened: isKept && chance(15) ? 5 * .minute : nil, timer: isKept && chance(10) ? .read : .send,
            mailbox: mailbox == nil ? .no : drawnConsent(isKept))
        command(machine, "proposed") { try $0.propose(conversation.text, terms) }
    }

    func read(_ machine: Machine, _ conversation: Listed) {
        machine.ask { [unowned self] node in
            guard let (reader, messages) = try? node.read(conversation.text, last: nil, after: nil) else { return }
            count("reads")
            if !machine.isHostile {
                oracle.checkInForce(reader, machine, self)
                for message in messages {
                    oracle.shows(message, reader, node.currentTime, machine, self)
                    look(at: message, of: conversation, machine, node)
                }
            }
            if chance(30) { node.markRead(messages, client: conversation.client) }
        }
    }

    private func react(_ machine: Machine, _ conversation: Listed) {
        machine.ask { [unowned self] node in
            guard let (_, messages) = try? node.read(conversation.text, last: 5, after: nil),
                let target = pick(messages.filter { $0.message.content.type == .text })
            else { return }
            let id = target.message.content.id.description
            if (try? node.react(conversation.text, to: id, emoji: "+", isRemoved: chance(20), whenDurable: { _ in }))
                != nil
            {
                count("reactions")
            }
        }
    }

    private func lockOrSleep(_ machine: Machine, _ conversation: Listed) {
        switch roll(3) {
        case 0:
            count("storage locks")
            machine.ask { $0.lock() }
            time.plan(inMilliseconds: 500 + roll(20_000)) { [unowned self] in unlock(machine) }
        case 1: command(machine, "put to sleep") { _ = try $0.sleepInbox(conversation.client.description) }
        default: command(machine, "rebalanced") { _ = try $0.rebalance() }
        }
    }

    func unlock(_ machine: Machine) {
        guard machine.isUp else { return }
        machine.unlockedAt = time.milliseconds
        machine.ask { [unowned self] node in
            do { try node.unlock(passphrase: nil) } catch { note("machine \(machine.index): not unlocked: \(error)") }
        }
    }
}

struct SendableBox<Value>: @unchecked Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
}

/// Files that users send: a member that reports a file as whole must have every byte of it.
extension NodeSimulation {
    /// Contents of file `number`, partly compressible.
    static func bytes(ofFile number: Int, count: Int) -> [UInt8] {
        var state = UInt64(truncatingIfNeeded: number) &* 0x9e37_79b9_7f4a_7c15 | 1
        return (0..<count).map { index in
            if index & 0xfff < 0x800 { return UInt8(truncatingIfNeeded: number) }
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return UInt8(truncatingIfNeeded: state >> 56)
        }
    }

    func sendFile(_ machine: Machine, _ conversation: Listed) {
        let number = nextText
        nextText += 1
        let bytes = Self.bytes(ofFile: number, count: Int(roll(chance(80) ? 40_000 : 400_000)))
        let isGivenUp = chance(10)
        command(machine, isGivenUp ? "files given up" : "files") { node in
            let upload = try node.beginUpload(
                conversation.text, name: "f\(number)", byteCount: Int64(bytes.count), text: "", replyTo: nil)
            _ = try node.append(ByteBuffer(bytes: bytes), to: upload)
            if isGivenUp { return node.cancelUpload(upload) }
            _ = try node.commitUpload(upload)
        }
    }

    /// Checks a file shown to a reader: a whole file equals the sent one.
    func look(at read: Node.ReadMessage, of conversation: Listed, _ machine: Machine, _ node: isolated Node) {
        guard let attachment = read.message.content.attachment, let number = Int(attachment.name.dropFirst()),
            attachment.name.first == "f", !machine.diskHasFailed,
            // A hostile sender may name a file freely.
            read.message.sender.map({ !isHostile($0) }) ?? true,
            // The sender of a file in memory drops it after delivery.
            read.message.sender != nil || read.isStored
        else { return }
        let file: Node.SavedAttachment
        do throws(NodeError) {
            file = try node.attachment(read.message.content.id.description, in: conversation.text)
        } catch { return count("files under way") }
        var found: [UInt8] = []
        do throws(NodeError) {
            for chunk in 0..<attachment.chunkCount { found += try node.read(file, from: chunk, count: 1) }
        } catch {
            // The file may expire between message and last chunk.
            if let end = read.message.expiresAt, end <= node.currentTime + 1_000 { return }
            return violation("I1 machine \(machine.index) says that \(attachment.name) is whole: \(error)")
        }
        count(read.message.sender == nil ? "own files read" : "files read")
        if found != Self.bytes(ofFile: number, count: found.count) || found.count != Int(attachment.byteCount) {
            violation("I1 machine \(machine.index) shows \(attachment.name) otherwise than it was sent")
        }
    }
}
