import Logging
import Messaging
import NIOCore
import Primitives
import Store
import Transport
import Wire

/// A file of one inbox: members of another may have chosen the same id.
struct FileName: Hashable {
    var client: ClientID
    var id: Messaging.MessageID
}

/// A file whose hash is being computed: of what comes in order while it comes, of the rest from the archive when all is
/// here.
final class Verification {
    let hasher = BLAKE2bHasher()
    /// The chunk that is hashed next.
    var next = 0
    /// Known once all chunks are here.
    var attachment: Attachment?
    /// A later attempt makes the steps of an earlier one void.
    var attempt: UInt64 = 0
}

/// Files between members: chunks out as the link takes them, and the hash of what has come.
extension Node {
    /// Largest file that is sent or taken, in bytes.
    package var attachmentByteCount: Int64 {
        min(max(0, configuration.attachmentByteCount ?? Limits.attachmentByteCount), Attachment.byteCountLimit)
    }

    func hasRoom(_ client: ClientID, byteCount: Int64) -> Bool {
        guard let row = inboxes[client]?.row, !store.isLocked, let stored = try? store.storedAmount(row) else {
            return false
        }
        return storage.room.isFor(file: byteCount, besides: stored.byteCount)
    }

    // MARK: Out

    /// Sends chunks on a link as long as it takes them; what else there is to send goes in between.
    func serveChunks(on link: LinkID) {
        guard links[link] != nil else { return }
        servedLinks.insert(link)
        scheduleServing()
    }

    /// The transport has room again.
    func becameWritable(_ link: LinkID) {
        if servedLinks.contains(link) { scheduleServing() }
    }

    private func scheduleServing() {
        guard !isServing else { return }
        isServing = true
        loop.assumeIsolated().execute {
            self.assumeIsolated { $0.serve() }
        }
    }

    private func serve() {
        isServing = false
        guard !isStopped else { return }
        var isAnyServed = false
        for link in servedLinks.sorted() {
            guard let connection = links[link]?.connection else {
                servedLinks.remove(link)
                continue
            }
            guard connection.isWritable else { continue }
            var isIdle = false
            turn { turn in
                let actions = core.chunksMayGo(on: link, &turn)
                isIdle = actions.isEmpty
                return actions
            }
            if isIdle { servedLinks.remove(link) } else { isAnyServed = true }
        }
        if isAnyServed { scheduleServing() }
    }

    func transmitChunk(_ id: Messaging.MessageID, _ index: Int, client: ClientID, on link: LinkID) {
        do throws(StoreError) {
            let chunk = try inboxes[client]?.archive.chunk(index, of: id, now: readClock().hide)
            // What is not here is asked for again, and then answered.
            if let chunk { transmit(.attachmentChunk(chunk), on: link) }
        } catch {
            log.error("a chunk could not be read", metadata: ["client": "\(client)", "error": "\(error)"])
        }
    }

    // MARK: In

    /// Bytes that are hashed in one turn of the loop, in chunks.
    private static let verificationChunkCount = 16
    /// Files that are hashed at the same time while they come.
    private static let verificationCount = 256

    /// Hashes a chunk that has come and was kept, if it is the next in order.
    func hash(_ chunk: AttachmentChunk, client: ClientID) {
        let name = FileName(client: client, id: chunk.message)
        let verification: Verification
        if let known = verifications[name] {
            verification = known
        } else if chunk.index == 0 {
            // Of files that were given up some are left. What goes on is read from the archive at the end.
            if verifications.count >= Self.verificationCount {
                verifications = verifications.filter { $0.value.attachment != nil }
            }
            verification = Verification()
            verifications[name] = verification
        } else {
            return
        }
        guard chunk.index == verification.next, verification.attachment == nil else { return }
        if chunk.isDeflated {
            guard let plain = chunk.inflated() else { return }
            verification.hasher.update(plain)
        } else {
            verification.hasher.update(chunk.bytes)
        }
        verification.next += 1
    }

    func verifyAttachment(_ id: Messaging.MessageID, client: ClientID) {
        guard let message = inboxes[client]?.archive.read(id, now: readClock().hide)?.message,
            let attachment = message.content.attachment
        else { return }
        let name = FileName(client: client, id: id)
        let before = verifications[name]
        let verification: Verification
        if let before, before.attachment == nil {
            verification = before
        } else {
            verification = Verification()
            verification.attempt = before?.attempt ?? 0
        }
        verification.attachment = attachment
        verification.attempt += 1
        verifications[name] = verification
        continueVerification(id, client, verification.attempt, after: .zero)
    }

    private func continueVerification(
        _ id: Messaging.MessageID,
        _ client: ClientID,
        _ attempt: UInt64,
        after delay: TimeAmount
    ) {
        loop.assumeIsolated().scheduleTask(in: delay) {
            self.assumeIsolated { $0.verifyOn(id, client, attempt) }
        }
    }

    private func verifyOn(_ id: Messaging.MessageID, _ client: ClientID, _ attempt: UInt64) {
        guard let verification = verifications[FileName(client: client, id: id)], verification.attempt == attempt,
            let attachment = verification.attachment, !isStopped
        else { return }
        guard let inbox = inboxes[client] else {
            verifications[FileName(client: client, id: id)] = nil
            return
        }
        let total = attachment.chunkCount
        let end = min(verification.next + Self.verificationChunkCount, total)
        while verification.next < end {
            let chunk: AttachmentChunk?
            do throws(StoreError) {
                chunk = try inbox.archive.chunk(verification.next, of: id, now: readClock().hide)
            } catch {
                // The disk's fault, not the file's: from the start on the next link.
                verifications[FileName(client: client, id: id)] = nil
                return storageFailed(client, error)
            }
            let byteCount = attachment.chunkByteCount(verification.next)
            guard let plain = chunk?.plain(byteCount: byteCount) else {
                if store.isLocked { return continueVerification(id, client, attempt, after: .seconds(1)) }
                return endVerification(id, client, isRight: false)
            }
            verification.hasher.update(plain)
            verification.next += 1
        }
        guard verification.next == total else {
            return continueVerification(id, client, attempt, after: .zero)
        }
        endVerification(id, client, isRight: verification.hasher.finalize() == attachment.hash)
    }

    private func endVerification(_ id: Messaging.MessageID, _ client: ClientID, isRight: Bool) {
        verifications[FileName(client: client, id: id)] = nil
        turn { core.attachmentVerified(id, client: client, isRight: isRight, &$0) }
    }

    // MARK: Loading

    /// Reactions and chunks of an inbox that is awake for the first time, or was loaded anew.
    func restoreHidden(_ inbox: Inbox) {
        guard !inbox.archive.isHiddenKnown else { return }
        inbox.archive.isHiddenKnown = true
        do throws(StoreError) {
            let undelivered = try inbox.archive.restoreHidden(from: inbox.outboxPlace, now: now)
            for message in undelivered { core.restoreOutbox(message, client: inbox.client) }
        } catch {
            log.error("reactions could not be read", metadata: ["client": "\(inbox.client)", "error": "\(error)"])
        }
    }
}
