import Crypto
import Messaging
import NIOCore
import Store

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
