import Cryptography
import Messaging
import NIOCore
import Store

/// Performs mail orders of the core: seals contents for offline members, puts the slots into their boxes, and reports
/// which messages the mailbox has stored.
final class MailOrders: Part {
    private static let windowCount = 4

    private final class Delivery {
        let order: MailOrder
        let client: ClientID
        var waiting: ArraySlice<Parcel>
        var result: MailResult
        var underWay: [SlotID: Parcel] = [:]
        var link: LinkID?
        var hasEnded = false
        var saidCount = 0

        init(_ order: MailOrder, _ client: ClientID, _ parcels: [Parcel], tooLarge: [Messaging.MessageID]) {
            self.order = order
            self.client = client
            waiting = parcels[...]
            result = MailResult(mailed: [], tooLarge: tooLarge, slotCount: parcels.count, isComplete: false)
        }
    }

    private struct Parcel {
        let put: SlotPut
        let messages: [Messaging.MessageID]
    }

    /// Starts an order once its slot numbers are durable.
    func mail(_ order: MailOrder, _ client: ClientID) {
        shell.commits.sendWhenDurable(
            .run { [weak self] isDurable in
                guard let self else { return }
                if isDurable { begin(order, client) } else { fail(order, client) }
            }, for: client)
    }

    private func fail(_ order: MailOrder, _ client: ClientID) {
        end(order, MailResult(mailed: [], tooLarge: [], slotCount: 0, isComplete: false), client)
    }

    private func begin(_ order: MailOrder, _ client: ClientID) {
        guard !isStopped, let inbox = inboxes[client], let key = inbox.key, !key.isWiped,
            let conversation = core.machine.conversationID(client)
        else { return fail(order, client) }
        let (parcels, tooLarge) = parcels(of: order, inbox, key, conversation)
        let delivery = Delivery(order, client, parcels, tooLarge: tooLarge)
        guard !parcels.isEmpty else {
            delivery.result.isComplete = true
            return end(delivery)
        }
        let remote = AnonymousLinks.Remote(
            endpoints: [order.address.endpoint], key: order.address.key, routingSecret: order.address.routingSecret)
        let purpose = AnonymousLinks.Purpose(
            opened: { [weak self] link in
                delivery.link = link
                self?.putMore(of: delivery)
            }, answered: { [weak self] answer, link in self?.answered(answer, on: link, delivery) },
            ended: { [weak self] in self?.end(delivery) })
        if shell.anonymousLinks.open(remote, for: purpose) == nil { end(delivery) }
    }

    /// Packs messages, in order, into as few slots as possible.
    private func parcels(of order: MailOrder, _ inbox: Inbox, _ key: IdentityKey, _ conversation: ConversationID) -> (
        parcels: [Parcel], tooLarge: [Messaging.MessageID]
    ) {
        let secret = SlotSecret(
            sender: key.publicKey, owner: order.member, box: order.address.box, conversation: conversation, own: key)
        var packing = Packing()
        var parcels: [Parcel] = []
        var tooLarge: [Messaging.MessageID] = []
        func seal() {
            guard !packing.isEmpty, parcels.count < Limits.mailSlotCount else { return }
            let number = order.number + UInt64(parcels.count)
            let body = SlotSealing.seal(
                packing.frames, to: order.key, SlotSealing.Hint(agreement: order.agreement, slice: order.slice),
                number: number, secret, box: order.address.box, ephemeral: SecretKey.generate(),
                nonce: randomBytes(XChaChaPoly.nonceByteCount))
            if let body {
                let id = SlotID(secret.tag(number))
                let put = SlotPut(id: id, kind: order.kind, keeping: order.keeping, body: body)
                parcels.append(Parcel(put: put, messages: packing.messages))
            }
            packing = Packing()
        }
        for frame in order.frames {
            let bytes = FrameCodec.encode(frame)
            if !packing.hasRoom(for: bytes.count) { seal() }
            packing.others.append(bytes)
        }
        let now = now
        for message in order.messages {
            guard let content = inbox.archive.content(message.id, now: now) else { continue }
            let aged = AgedContent(content, age: message.age)
            let byteCount = FrameCodec.encode(.contents([aged])).count
            if !packing.hasRoom(for: byteCount) { seal() }
            // The next order takes the remaining messages.
            if parcels.count == Limits.mailSlotCount { break }
            guard packing.hasRoom(for: byteCount) else {
                tooLarge.append(message.id)
                continue
            }
            packing.add(aged, byteCount: byteCount)
        }
        seal()
        return (parcels, tooLarge)
    }

    private struct Packing {
        var others: [[UInt8]] = []
        private var contents: [AgedContent] = []
        private var contentsByteCount = 0

        var isEmpty: Bool { others.isEmpty && contents.isEmpty }
        var messages: [Messaging.MessageID] { contents.map(\.content.id) }
        /// Each frame has a 4-byte length prefix; a contents frame has 4 more bytes.
        private var byteCount: Int { others.reduce(0) { $0 + $1.count + 4 } + contentsByteCount + 8 }

        var frames: [[UInt8]] { others + (contents.isEmpty ? [] : [FrameCodec.encode(.contents(contents))]) }

        func hasRoom(for count: Int) -> Bool {
            byteCount + count + 8 <= SlotSealing.capacity && contents.count < Limits.contentsCount
        }

        mutating func add(_ aged: AgedContent, byteCount: Int) {
            contents.append(aged)
            contentsByteCount += byteCount
        }
    }

    private func putMore(of delivery: Delivery) {
        guard let link = delivery.link else { return }
        while delivery.underWay.count < Self.windowCount, let parcel = delivery.waiting.popFirst() {
            delivery.underWay[parcel.put.id] = parcel
            delivery.saidCount += 1
            shell.anonymousLinks.say(.put(delivery.order.address.box, parcel.put), on: link)
        }
        guard delivery.underWay.isEmpty, delivery.waiting.isEmpty else { return }
        delivery.result.isComplete = true
        shell.anonymousLinks.close(link)
        end(delivery)
    }

    private func answered(_ answer: MailboxAnswer, on link: LinkID, _ delivery: Delivery) {
        guard case .put(delivery.order.address.box, let id, let outcome) = answer,
            let parcel = delivery.underWay.removeValue(forKey: id)
        else { return shell.anonymousLinks.abort(link) }
        guard outcome == .stored else {
            delivery.waiting = []
            shell.anonymousLinks.close(link)
            return end(delivery)
        }
        delivery.result.mailed += parcel.messages
        putMore(of: delivery)
    }

    private func end(_ delivery: Delivery) {
        // The link may end after the order.
        guard !delivery.hasEnded else { return }
        delivery.hasEnded = true
        delivery.result.slotCount = delivery.saidCount
        end(delivery.order, delivery.result, delivery.client)
    }

    private func end(_ order: MailOrder, _ result: MailResult, _ client: ClientID) {
        guard !isStopped else { return }
        note(.mailed(client, slotCount: result.slotCount, isComplete: result.isComplete))
        core.turn { core.machine.step(client, &$0) { $0.mailed(order, result, &$1) } }
    }
}

/// Slice keys. Each is derived from its inbox's row and the bucket in which the slice's last content expires. When the
/// store overwrites that bucket's page, the key is gone, even if a mailbox has kept the contents.
final class SliceKeyMaker: Part {
    /// Pause between two steps of ``Limits/sliceStepCount`` keys: a new bucket is a blocking write.
    private static let pause: Milliseconds = 20

    /// Sends public slice keys from the present slice on, or from the one after `above`.
    func send(_ agreement: AgreementID, above: UInt32?, _ client: ClientID, on link: LinkID) {
        guard !isStopped, !store.isLocked, links[link] != nil, let inbox = inboxes[client],
            let conversation = core.machine.conversation(client), conversation.agreement?.id == agreement,
            let terms = conversation.agreement?.terms
        else { return }
        let schedule = SliceSchedule(terms)
        let now = now
        let present = schedule.slice(at: now)
        let final = schedule.last(at: now)
        // The peer may send any number.
        let first = max(present, min(above ?? 0, final) + (above == nil ? 0 : 1))
        let last = min(final, first + UInt32(Limits.sliceStepCount - 1))
        var keys: [PublicKey] = []
        for slice in first..<max(first, last + 1) {
            do throws(StoreError) {
                guard let key = try key(slice, schedule, inbox, isMade: true)?.publicKey else { break }
                keys.append(key)
            } catch {
                say("a slice key could not be made", of: error)
                break
            }
        }
        let message = SliceKeys(
            agreement: agreement, first: first, present: present, left: max(1, schedule.end(of: present) - now),
            keys: keys)
        shell.commits.sendWhenDurable(.transmit(link, .mailbox(.keys(message))), on: link)
        // Keys after a gap would be assigned to the wrong slices.
        guard keys.count == Int(last) - Int(first) + 1, last < final else { return }
        after(Self.pause) {
            // As an action, so that its output is sent at the end.
            self.core.perform([.makeSlices(client, agreement, above: last, link)])
        }
    }

    /// - Returns: `nil` if the slice's key is destroyed.
    /// - Throws: if the store refuses for now.
    func key(_ slice: UInt32, _ schedule: SliceSchedule, _ inbox: Inbox, isMade: Bool) throws(StoreError) -> SecretKey?
    {
        let end = schedule.keyEnd(of: slice)
        // An expired key stays closed, even if its page is not overwritten yet.
        guard end > readClock().hide, let tier = schedule.tier.tier else { return nil }
        for attempt in 0..<4 {
            // One derivation in 2^127 yields an invalid key.
            let secret = try store.secret(
                inbox.row, tier: tier, expiresAt: end.milliseconds,
                label: "mailbox slice \(slice) \(schedule.width) \(attempt)", isMade: isMade)
            switch consume secret {
            case .none: return nil
            case .some(let secret): if let key = try? SecretKey(secret) { return key }
            }
        }
        return nil
    }
}
