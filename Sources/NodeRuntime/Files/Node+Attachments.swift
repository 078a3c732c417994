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

/// A file whose hash is being computed. A class, as ``Upload``: the hash holds the file's last bytes.
final class Verification {
    let attachment: Attachment
    var hasher = SHA256()
    var next = 0
    /// A later attempt makes the steps of an earlier one void.
    let attempt: UInt64

    init(attachment: Attachment, attempt: UInt64) {
        self.attachment = attachment
        self.attempt = attempt
    }
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
        var goesOn = false
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
            if isIdle { servedLinks.remove(link) } else { goesOn = true }
        }
        if goesOn { scheduleServing() }
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

    func verifyAttachment(_ id: Messaging.MessageID, client: ClientID) {
        guard let message = inboxes[client]?.archive.read(id, now: readClock().hide)?.message,
            let attachment = message.content.attachment
        else { return }
        let attempt = (verifications[FileName(client: client, id: id)]?.attempt ?? 0) + 1
        verifications[FileName(client: client, id: id)] = Verification(attachment: attachment, attempt: attempt)
        continueVerification(id, client, attempt, after: .zero)
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
            !isStopped
        else { return }
        guard let inbox = inboxes[client] else {
            verifications[FileName(client: client, id: id)] = nil
            return
        }
        let total = verification.attachment.chunkCount
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
            let byteCount = verification.attachment.chunkByteCount(verification.next)
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
        endVerification(id, client, isRight: verification.hasher.finalize() == verification.attachment.sha256)
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
