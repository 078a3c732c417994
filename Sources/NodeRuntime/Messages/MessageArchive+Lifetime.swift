import Crypto
import Messaging
import Store

/// Effects of agreements on existing messages.
extension MessageArchive {
    /// The message was read: it now expires at `expiresAt`, whether or not it is read again.
    func reschedule(_ id: Messaging.MessageID, expiresAt: Timestamp, now: Timestamp) throws(StoreError) {
        if rescheduleHeld(id, expiresAt: expiresAt, now: now) { return }
        outgoing.remove(id)
        learned.forgetPlace(of: id)
        guard !store.isLocked, let bytes = try store.read(row, id: id.bytes, now: now.milliseconds),
            let (stored, arrivedAt) = try? StoredCodec.decodeMessage(bytes),
            let tier = Lifetime.holding(expiresAt - now).tier
        else { return }
        // Its status records end with its former bucket.
        var message = try current(stored)
        if message.state == .sent { message.state = stored.state }
        message.expiresAt = expiresAt
        message.onReading = nil
        try store.reschedule(
            row, id: id.bytes, tier: tier, expiresAt: expiresAt.milliseconds,
            payload: StoredCodec.encode(message, arrivedAt: arrivedAt))
        guard let attachment = message.content.attachment else { return }
        try rescheduleChunks(id, count: attachment.chunkCount, tier: tier, expiresAt: expiresAt)
    }

    /// Messages of ours and of the system that name an agreement.
    func sent(under agreement: AgreementID) throws(StoreError) -> [Messaging.MessageID] {
        var found = heldSent(under: agreement)
        guard !store.isLocked else { return found }
        try store.visit(row, now: 0) { _, stored in
            if let (message, _) = try? StoredCodec.decodeMessage(stored.payload), message.sender == nil,
                message.content.agreement == agreement
            {
                found.append(message.content.id)
            }
            return true
        }
        return found
    }
}
