import Messaging
import NIOCore
import Primitives
import Store

/// A file that its user is handing over is named like the message that it will be.
package typealias UploadID = Messaging.MessageID

/// A file on its way from its user into the archive. A class: a dictionary does not overwrite the place of a value that is
/// removed, and the hash holds the file's last bytes, a short name or text its own.
final class Upload {
    let client: ClientID
    let prepared: PreparedAttachment
    let name: String
    let text: String
    let replyTo: Messaging.MessageID?
    let hasher = BLAKE2bHasher()
    var byteCount: Int64 = 0
    /// Less than a chunk.
    var rest: [UInt8] = []
    var chunkCount = 0
    /// Chunks that are not tried to be deflated, since the ones before did not shrink; doubles up to 32.
    var skip = 0
    var skipLength = 1
    /// Called once it has ended, in whatever way.
    var whenEnded: (() -> Void)?

    init(
        client: ClientID,
        prepared: PreparedAttachment,
        name: String,
        text: String,
        replyTo: Messaging.MessageID?
    ) {
        self.client = client
        self.prepared = prepared
        self.name = name
        self.text = text
        self.replyTo = replyTo
    }
}

/// Files from the user, piece by piece, and back to the user.
extension Node {
    // MARK: From the user

    /// Begins to take a file.
    /// - Parameters:
    ///   - byteCount: as far as it is known; more than the limit is refused before any byte.
    ///   - replyTo: the beginning of a message's id.
    package func beginUpload(
        _ conversation: String,
        name: String,
        byteCount: Int64?,
        text: String,
        replyTo: String?
    ) throws(NodeError) -> UploadID {
        guard uploads.count < Limits.uploadCount else { throw .tooManyUploads(limit: Limits.uploadCount) }
        let target: Messaging.MessageID? =
            if let replyTo { try resolveMessage(replyTo, in: conversation).id } else { nil }
        let (client, prepared) = try command(conversation) { machine, turn throws(CommandError) in
            if !text.isEmpty { try machine.check(text) }
            return (try machine.prepareAttachment(byteCount: max(0, byteCount ?? 0), &turn), [])
        }
        try checkRoom(prepared, byteCount: max(0, byteCount ?? 0), client: client)
        let base = name.split(separator: "/").last.map(String.init) ?? name
        uploads[prepared.message] = Upload(
            client: client,
            prepared: prepared,
            name: Attachment.safeName(base),
            text: text,
            replyTo: target
        )
        memory.uploading.insert(prepared.message)
        return prepared.message
    }

    private func checkRoom(_ prepared: PreparedAttachment, byteCount: Int64, client: ClientID) throws(NodeError) {
        switch prepared.keeping {
        case .memory, .untilUnlocked:
            guard memory.chunkByteCount + byteCount <= Limits.attachmentMemoryTotalByteCount else {
                throw .command(.fileMemoryFull(limit: Limits.attachmentMemoryTotalByteCount))
            }
        case .disk:
            if store.isLocked { throw .locked }
        }
    }

    /// Takes the next bytes. A refusal ends the upload.
    /// - Returns: how many bytes there are by now, when they are durable or in memory.
    package func append(_ piece: ByteBuffer, to id: UploadID) throws(NodeError) -> EventLoopFuture<Int64> {
        let bytes = piece.readableBytesView
        guard let upload = uploads[id] else { throw unknown(id) }
        upload.byteCount += Int64(bytes.count)
        upload.hasher.update(bytes)
        do throws(NodeError) {
            // Others may have needed its place since the last piece.
            try wake(upload.client, .userInteraction)
            try check(upload, adding: bytes.count)
            storage.refusal = nil
            var left = bytes[...]
            while upload.rest.count + left.count >= Limits.chunkByteCount {
                let count = Limits.chunkByteCount - upload.rest.count
                keep(upload.rest.isEmpty ? Array(left.prefix(count)) : upload.rest + left.prefix(count), of: upload)
                upload.rest = []
                left = left.dropFirst(count)
            }
            upload.rest += left
            if let failure = storage.refusal { throw .store(failure) }
        } catch {
            cancelUpload(id)
            throw error
        }
        let byteCount = upload.byteCount
        return whenDurable(upload.client).map { byteCount }
    }

    private func check(_ upload: Upload, adding byteCount: Int) throws(NodeError) {
        guard let machine = core.conversation(upload.client) else {
            throw .unknownConversation(upload.client.description)
        }
        do throws(CommandError) {
            try machine.checkPrepared(upload.prepared, byteCount: upload.byteCount, makeTurn())
        } catch {
            throw .command(error)
        }
        try checkRoom(upload.prepared, byteCount: Int64(byteCount), client: upload.client)
    }

    private func keep(_ plain: [UInt8], of upload: Upload) {
        let chunk = AttachmentChunk(
            message: upload.prepared.message,
            index: upload.chunkCount,
            plain: plain,
            isWorthTrying: upload.skip == 0
        )
        upload.chunkCount += 1
        if upload.skip > 0 {
            upload.skip -= 1
        } else if chunk.isDeflated {
            upload.skipLength = 1
        } else {
            upload.skip = upload.skipLength
            upload.skipLength = min(upload.skipLength * 2, 32)
        }
        keep(chunk, client: upload.client, expiresAt: upload.prepared.expiresAt, upload.prepared.keeping)
    }

    /// Sends a file whose bytes have all come.
    /// - Returns: its message, when it is durable or in memory, as its lifetime says.
    package func commitUpload(_ id: UploadID, whenDurable: @escaping WhenDurable = { _ in }) throws(NodeError) -> Sent {
        guard let upload = uploads[id] else { throw unknown(id) }
        let sent: Sent
        do throws(NodeError) {
            try wake(upload.client, .userInteraction)
            storage.refusal = nil
            if !upload.rest.isEmpty { keep(upload.rest, of: upload) }
            upload.rest = []
            if let failure = storage.refusal { throw .store(failure) }
            let attachment = Attachment(
                name: upload.name,
                mediaType: MediaType.guess(upload.name),
                byteCount: upload.byteCount,
                hash: upload.hasher.finalize(),
                text: upload.text,
                replyTo: upload.replyTo
            )
            let prepared = upload.prepared
            sent = try sending(upload.client, whenDurable) { machine, turn throws(CommandError) in
                try machine.send(attachment, prepared, &turn)
            }
        } catch {
            cancelUpload(id)
            throw error
        }
        uploads[id] = nil
        memory.uploading.remove(id)
        upload.whenEnded?()
        return sent
    }

    /// A disk in trouble may have ended it.
    private func unknown(_ id: UploadID) -> NodeError {
        storage.trouble.map { .store($0.error) } ?? .unknownUpload(id.description)
    }

    /// Calls `body` once the upload has ended.
    package func whenUploadEnds(_ id: UploadID, _ body: @escaping () -> Void) { uploads[id]?.whenEnded = body }

    /// Gives up a file; what has come of it is destroyed.
    package func cancelUpload(_ id: UploadID) {
        guard let upload = uploads.removeValue(forKey: id) else { return }
        upload.whenEnded?()
        memory.uploading.remove(id)
        inboxes[upload.client]?.archive.forgetHeldChunks(id)
        storing(upload.client) { inbox throws(StoreError) in
            guard !store.isLocked else { return }
            try inbox.archive.forgetChunks(id, count: upload.chunkCount)
        }
        changed(upload.client)
    }

    /// Gives up what is being handed over into an inbox that goes, or goes on from what is durable, and what was hashed of
    /// files on their way to it.
    func cancelFiles(of client: ClientID) {
        verifications = verifications.filter { $0.key.client != client }
        for id in uploads.filter({ $0.value.client == client }).keys.sorted() { cancelUpload(id) }
    }

    // MARK: To the user

    /// A file that is whole here.
    package struct SavedAttachment {
        package var client: ClientID
        package var message: Messaging.MessageID
        package var attachment: Attachment
    }

    /// - Parameter text: the beginning of the message's id.
    /// - Throws: ``NodeError/noAttachment(_:)``, ``NodeError/attachmentIncomplete(_:count:of:)``,
    ///   ``NodeError/attachmentLost(_:)``.
    package func attachment(_ text: String, in conversation: String) throws(NodeError) -> SavedAttachment {
        let (client, id) = try resolveMessage(text, in: conversation)
        guard let message = message(id, client: client)?.message, let attachment = message.content.attachment else {
            throw .noAttachment(text)
        }
        switch message.state {
        case .receiving:
            let progress = progress(of: message, client: client) ?? (0, attachment.chunkCount)
            throw .attachmentIncomplete(id, count: progress.count, of: progress.of)
        case .failed:
            // Our own is here, whatever the others made of it.
            if message.sender != nil { throw .attachmentLost(id) }
        case .queued, .sent, .delivered, .expiredUndelivered, .cancelled, .received, .read: break
        }
        return SavedAttachment(client: client, message: id, attachment: attachment)
    }

    /// Bytes of a file from chunk `first` on.
    /// - Returns: the bytes of at most `count` chunks; none behind the last.
    package func read(_ file: SavedAttachment, from first: Int, count: Int) throws(NodeError) -> [UInt8] {
        var result: [UInt8] = []
        let total = file.attachment.chunkCount
        guard first >= 0, first < total else { return [] }
        for index in first..<min(total, first + max(0, min(count, Limits.attachmentWindow))) {
            let chunk: AttachmentChunk?
            do throws(StoreError) {
                chunk = try inboxes[file.client]?.archive.chunk(index, of: file.message, now: readClock().hide)
            } catch {
                throw .store(error)
            }
            guard let plain = chunk?.plain(byteCount: file.attachment.chunkByteCount(index)) else {
                throw .attachmentLost(file.message)
            }
            result += plain
        }
        return result
    }
}

/// A guess at what a file is, by the end of its name.
enum MediaType {
    private static let known: [String: String] = [
        "txt": "text/plain", "log": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html",
        "htm": "text/html", "css": "text/css", "js": "text/javascript", "json": "application/json",
        "xml": "application/xml", "yaml": "application/yaml", "yml": "application/yaml", "pdf": "application/pdf",
        "zip": "application/zip", "gz": "application/gzip", "tgz": "application/gzip", "xz": "application/x-xz",
        "zst": "application/zstd", "tar": "application/x-tar", "7z": "application/x-7z-compressed",
        "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
        "svg": "image/svg+xml", "avif": "image/avif", "heic": "image/heic", "mp3": "audio/mpeg",
        "ogg": "audio/ogg", "opus": "audio/ogg", "flac": "audio/flac", "wav": "audio/wav", "m4a": "audio/mp4",
        "mp4": "video/mp4", "webm": "video/webm", "mkv": "video/x-matroska", "mov": "video/quicktime",
    ]

    static func guess(_ name: String) -> String {
        guard let dot = name.lastIndex(of: ".") else { return "application/octet-stream" }
        return known[name[name.index(after: dot)...].lowercased()] ?? "application/octet-stream"
    }
}
