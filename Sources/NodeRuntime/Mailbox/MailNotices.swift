import Cryptography
import Messaging
import NIOCore
import Store

/// Puts explosion notices into the boxes of members that may be offline. At the creator, also collects these members'
/// receipts. The lists are stored outside the destroyed inbox, for as long as a tombstone. Other members drop a notice
/// once the mailbox has stored it.
final class MailNotices: Part {
    /// Time for members with an open link to confirm over that link before their boxes are used.
    private static let delay: Milliseconds = 5 * .second

    private struct Entry: Codable {
        let member: PublicKey
        /// The box's address, as in the member's description.
        let address: String
        let tag: SlotTag
        let body: String
        let answerKey: String
        var isPut = false
    }

    /// The saved form of a list, sealed under the store's control row.
    private struct List: Codable {
        let mailNotices: ConversationID
        let until: Messaging.Timestamp
        var entries: [Entry]
    }

    private struct Round {
        var list: List
        var failures = 0
        var underWayCount = 0
        var wasPut: Set<SlotTag> = []
        var timer: Scheduled<Void>?
    }

    private var rounds: [ConversationID: Round] = [:]

    func begin(_ conversation: ConversationID, _ notices: [MailNotice]) {
        let entries = notices.map { one in
            Entry(
                member: one.member, address: one.address.text, tag: one.tag, body: Base64URL.encode(one.body),
                answerKey: Base64URL.encode(one.answerKey))
        }
        let list = List(mailNotices: conversation, until: now + Limits.tombstoneLifetime, entries: entries)
        rounds[conversation]?.timer?.cancel()
        rounds[conversation] = Round(list: list)
        save(conversation)
        schedule(conversation, in: Self.delay)
    }

    /// Loads the lists of earlier runs, at the start.
    func load() {
        guard !store.isLocked, let stored = try? store.fanOuts(now: now.milliseconds) else { return }
        for message in stored {
            guard let list = try? StoredCodec.decode(List.self, message.payload), rounds[list.mailNotices] == nil else {
                continue
            }
            rounds[list.mailNotices] = Round(list: list)
            schedule(list.mailNotices, in: Self.delay)
        }
    }

    private static func id(_ conversation: ConversationID) -> Bytes16 {
        BLAKE2b.hash(Array("mayfly mail notices".utf8), conversation.bytes, byteCount: 16).withUnsafeBytes {
            Bytes16(copying: $0)
        }
    }

    func save(_ conversation: ConversationID) {
        guard let list = rounds[conversation]?.list else { return remove(conversation) }
        guard !store.isLocked else { return retries.add(.mailNotices(conversation)) }
        do throws(StoreError) {
            try store.saveFanOut(
                id: Self.id(conversation), expiresAt: list.until.milliseconds, payload: StoredCodec.encode(record: list)
            )
        } catch {
            retries.add(.mailNotices(conversation))
            say("the notices for mailboxes could not be written", of: error)
        }
        shell.commits.schedule()
    }

    private func remove(_ conversation: ConversationID) {
        rounds.removeValue(forKey: conversation)?.timer?.cancel()
        guard !store.isLocked else { return retries.add(.mailNotices(conversation)) }
        try? store.removeFanOut(id: Self.id(conversation))
        shell.commits.schedule()
    }

    private func schedule(_ conversation: ConversationID, in time: Milliseconds) {
        rounds[conversation]?.timer?.cancel()
        rounds[conversation]?.timer = loop.assumeIsolated().scheduleTask(in: .milliseconds(time)) { [weak self] in
            self?.attempt(conversation)
        }
    }

    private func attempt(_ conversation: ConversationID) {
        guard !isStopped, var round = rounds[conversation], round.underWayCount == 0 else { return }
        round.timer = nil
        let record = core.machine.tombstone(conversation)
        // Drops unparsable addresses.
        round.list.entries.removeAll { record?.confirmed[$0.member] != nil || MailboxAddress($0.address) == nil }
        rounds[conversation] = round
        guard record != nil, round.list.until > now, !round.list.entries.isEmpty else { return remove(conversation) }
        // A link that cannot be opened ends at once. A round fails when all its links have ended.
        rounds[conversation]?.underWayCount = round.list.entries.count
        for entry in round.list.entries {
            guard let address = MailboxAddress(entry.address) else { continue }
            let remote = AnonymousLinks.Remote(
                endpoints: [address.endpoint], key: address.key, routingSecret: address.routingSecret)
            var isAnswered = false
            let number = shell.anonymousLinks.open(
                remote,
                for: AnonymousLinks.Purpose(
                    opened: { [weak self] link in self?.ask(entry, address, on: link) },
                    answered: { [weak self] answer, link in
                        // The first answer closes the link.
                        guard !isAnswered else { return }
                        isAnswered = true
                        self?.answered(answer, on: link, entry, address, conversation)
                    }, ended: { [weak self] in self?.ended(conversation) }))
            if number == nil { ended(conversation) }
        }
    }

    private func ask(_ entry: Entry, _ address: MailboxAddress, on link: LinkID) {
        guard !entry.isPut else { return shell.anonymousLinks.say(.take(address.box, [entry.tag]), on: link) }
        guard let body = Base64URL.decode(entry.body) else { return shell.anonymousLinks.close(link) }
        let put = SlotPut(id: SlotID(entry.tag), kind: .notice, keeping: .fortyFiveDays, body: body)
        shell.anonymousLinks.say(.put(address.box, put), on: link)
    }

    private func answered(
        _ answer: MailboxAnswer, on link: LinkID, _ entry: Entry, _ address: MailboxAddress,
        _ conversation: ConversationID
    ) {
        shell.anonymousLinks.close(link)
        switch answer {
        case .put(address.box, SlotID(entry.tag), .stored): put(entry, conversation)
        case .slot(address.box, SlotID(entry.tag), _, true, let body):
            guard let key = Base64URL.decode(entry.answerKey), key.count == 32,
                let sealed = SlotSealing.answer(in: body, key: SecretBytes(copying: key), box: address.box)
            else { return }
            core.turn { core.machine.receiveReceipt(sealed, for: conversation, &$0) }
        case .absent(address.box, SlotID(entry.tag)):
            // The mailbox has lost the notice, or claims so.
            change(entry, conversation) { $0.isPut = false }
        case .put, .slot, .absent, .granted, .refused, .waiting, .slots, .discarded: break
        }
    }

    private func put(_ entry: Entry, _ conversation: ConversationID) {
        // A mailbox that keeps losing a notice must not reset the retry pause.
        if rounds[conversation]?.wasPut.insert(entry.tag).inserted ?? false { rounds[conversation]?.failures = 0 }
        guard core.machine.tombstone(conversation)?.role == .creator else {
            // Only the creator waits for receipts.
            rounds[conversation]?.list.entries.removeAll { $0.tag == entry.tag }
            return save(conversation)
        }
        change(entry, conversation) { $0.isPut = true }
    }

    private func change(_ entry: Entry, _ conversation: ConversationID, _ body: (inout Entry) -> Void) {
        guard let index = rounds[conversation]?.list.entries.firstIndex(where: { $0.tag == entry.tag }) else { return }
        body(&rounds[conversation]!.list.entries[index])
        save(conversation)
    }

    private func ended(_ conversation: ConversationID) {
        guard var round = rounds[conversation] else { return }
        round.underWayCount -= 1
        rounds[conversation] = round
        guard round.underWayCount == 0 else { return }
        guard !round.list.entries.isEmpty else { return remove(conversation) }
        let wait = Limits.mailRetry.wait(after: round.failures)
        rounds[conversation]?.failures += 1
        schedule(conversation, in: wait)
    }
}
