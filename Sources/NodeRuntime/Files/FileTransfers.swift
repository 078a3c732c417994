import Cryptography
import Logging
import Messaging
import NIOCore
import Store
import Transport

/// Files between members: sends chunks as links accept them, and hashes received ones.
final class FileTransfers: Part {
    private var served: Set<LinkID> = []
    private var isServing = false

    /// Sends chunks while the link accepts them, interleaved with other frames.
    func serve(_ link: LinkID) {
        guard links[link] != nil else { return }
        served.insert(link)
        schedule()
    }

    func stopServing(_ link: LinkID) { served.remove(link) }

    func becameWritable(_ link: LinkID) { if served.contains(link) { schedule() } }

    private func schedule() {
        guard !isServing else { return }
        isServing = true
        execute { self.serve() }
    }

    private func serve() {
        isServing = false
        guard !isStopped else { return }
        var goesOn = false
        for link in served.sorted() {
            guard let connection = links[link]?.connection else {
                served.remove(link)
                continue
            }
            guard connection.isWritable else { continue }
            var isIdle = false
            core.turn { turn in
                core.machine.chunksMayGo(on: link, &turn)
                isIdle = turn.actions.isEmpty
            }
            if isIdle { served.remove(link) } else { goesOn = true }
        }
        if goesOn { schedule() }
    }

    func transmitChunk(_ id: Messaging.MessageID, _ index: Int, client: ClientID, on link: LinkID) {
        do throws(StoreError) {
            let chunk = try inboxes[client]?.archive.chunk(index, of: id, now: readClock().hide)
            // The peer asks again for a missing chunk, and is answered then.
            if let chunk { shell.output.transmit(.attachmentChunk(chunk), on: link) }
        } catch { log.error("a chunk could not be read", metadata: ["client": "\(client)", "error": "\(error)"]) }
    }

    private static let verificationChunkCount = 16

    /// Files of one inbox hashed concurrently during their transfer.
    private static let verificationCount = 256

    /// Hashes a received and stored chunk, if it is the next in order.
    func hash(_ chunk: AttachmentChunk, client: ClientID) {
        guard let inbox = inboxes[client] else { return }
        let verification: Verification
        if let known = inbox.verifications[chunk.message] {
            verification = known
            // The hash so far belongs to an earlier offer with the same id.
            if chunk.index == 0, known.attachment == nil { known.restart() }
        } else if chunk.index == 0 {
            // Abandoned files may have left hashes. A file in transfer can be hashed from the archive at the end.
            if inbox.verifications.count >= Self.verificationCount {
                inbox.verifications = inbox.verifications.filter { $0.value.attachment != nil }
            }
            verification = Verification()
            inbox.verifications[chunk.message] = verification
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

    func verify(_ id: Messaging.MessageID, client: ClientID) {
        guard let inbox = inboxes[client], let message = inbox.archive.read(id, now: readClock().hide)?.message,
            let attachment = message.content.attachment
        else { return }
        let verification: Verification
        if let begun = inbox.verifications[id], begun.attachment == nil {
            verification = begun
        } else {
            verification = Verification()
            verification.attempt = inbox.verifications[id]?.attempt ?? 0
        }
        verification.attachment = attachment
        verification.attempt += 1
        inbox.verifications[id] = verification
        goOn(id, inbox, verification.attempt, after: 0)
    }

    private func goOn(_ id: Messaging.MessageID, _ inbox: Inbox, _ attempt: UInt64, after delay: Milliseconds) {
        after(delay) { self.verifyOn(id, inbox, attempt) }
    }

    private func verifyOn(_ id: Messaging.MessageID, _ inbox: Inbox, _ attempt: UInt64) {
        guard let verification = inbox.verifications[id], verification.attempt == attempt, !isStopped,
            let attachment = verification.attachment
        else { return }
        guard inboxes[inbox.client] === inbox else {
            inbox.verifications[id] = nil
            return
        }
        let total = attachment.chunkCount
        let end = min(verification.next + Self.verificationChunkCount, total)
        while verification.next < end {
            let chunk: AttachmentChunk?
            do throws(StoreError) {
                chunk = try inbox.archive.chunk(verification.next, of: id, now: readClock().hide)
            } catch {
                // The disk failed, not the file: hash again from the start on the next link.
                inbox.verifications[id] = nil
                return shell.writer.failed(inbox.client, error)
            }
            guard let plain = chunk?.plain(byteCount: attachment.chunkByteCount(verification.next)) else {
                if store.isLocked { return goOn(id, inbox, attempt, after: .second) }
                return self.end(id, inbox, isRight: false)
            }
            verification.hasher.update(plain)
            verification.next += 1
        }
        guard verification.next == total else { return goOn(id, inbox, attempt, after: 0) }
        self.end(id, inbox, isRight: verification.hasher.finalize() == attachment.hash)
    }

    private func end(_ id: Messaging.MessageID, _ inbox: Inbox, isRight: Bool) {
        inbox.verifications[id] = nil
        core.turn { core.machine.step(inbox.client, &$0) { $0.attachmentVerified(id, isRight, &$1) } }
    }
}

/// The hash of a file in transfer. Chunks are hashed on arrival while they come in order; the rest is read from the
/// archive once the file is complete.
final class Verification {
    /// Holds up to 64 of the last bytes; they are overwritten when the hasher is released.
    private(set) var hasher = SHA256Hasher()
    var next = 0
    /// Known once all chunks have arrived.
    var attachment: Attachment?
    /// A later attempt cancels the steps of an earlier one.
    var attempt: UInt64 = 0

    func restart() {
        hasher = SHA256Hasher()
        next = 0
    }
}
