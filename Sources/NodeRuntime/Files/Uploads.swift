import Cryptography
import Messaging
import NIOCore
import Store

/// An upload has the id of its future message.
package typealias UploadID = Messaging.MessageID

/// A file in transfer from the user to the archive. A class, because a dictionary does not overwrite removed values,
/// and hash state and short strings hold contents inline.
final class Upload {
    let client: ClientID
    let prepared: PreparedAttachment
    let name: String
    let text: String
    let replyTo: Messaging.MessageID?
    let hasher = SHA256Hasher()
    var byteCount: Int64 = 0
    /// Less than a chunk.
    var rest: [UInt8] = []
    var chunkCount = 0
    /// The last chunk that was tried became smaller, or none was tried.
    var isDeflating = true
    var whenEnded: (() -> Void)?

    init(client: ClientID, prepared: PreparedAttachment, name: String, text: String, replyTo: Messaging.MessageID?) {
        self.client = client
        self.prepared = prepared
        self.name = name
        self.text = text
        self.replyTo = replyTo
    }
}

final class Uploads: Part {
    private var uploads: [UploadID: Upload] = [:]

    var count: Int { uploads.count }

    /// Starts an upload.
    /// - Parameter byteCount: the size as far as known; a size above the limit is refused at once.
    func begin(
        _ prepared: PreparedAttachment, client: ClientID, name: String, byteCount: Int64, text: String,
        replyTo: Messaging.MessageID?
    ) throws(NodeError) -> UploadID {
        try checkRoom(prepared, byteCount: byteCount, client: client)
        let base = name.split(separator: "/").last.map(String.init) ?? name
        uploads[prepared.message] = Upload(
            client: client, prepared: prepared, name: Attachment.safeName(base), text: text, replyTo: replyTo)
        memory.uploading.insert(prepared.message)
        return prepared.message
    }

    private func checkRoom(_ prepared: PreparedAttachment, byteCount: Int64, client: ClientID) throws(NodeError) {
        switch prepared.keeping {
        case .memory, .untilUnlocked:
            guard memory.chunkByteCount + byteCount <= Limits.attachmentMemoryTotalByteCount else {
                throw .command(.fileMemoryFull)
            }
        case .disk: if store.isLocked { throw .locked }
        }
    }

    /// Appends bytes. A refusal ends the upload.
    /// - Returns: the byte count so far, once at most a few MiB wait for the disk. The bytes become durable with the
    ///   file's message.
    func append(_ piece: ByteBuffer, to id: UploadID) throws(NodeError) -> EventLoopFuture<Int64> {
        let bytes = piece.readableBytesView
        guard let upload = uploads[id] else { throw unknown(id) }
        upload.byteCount += Int64(bytes.count)
        upload.hasher.update(bytes)
        do throws(NodeError) {
            try shell.sleep.wake(upload.client, .userInteraction)
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
            cancel(id)
            throw error
        }
        let byteCount = upload.byteCount
        return shell.commits.whenDurable(upload.client).map { byteCount }
    }

    private func check(_ upload: Upload, adding byteCount: Int) throws(NodeError) {
        guard let machine = core.machine.conversation(upload.client) else {
            throw .unknownConversation(upload.client.description)
        }
        do throws(CommandError) {
            try machine.checkPrepared(upload.prepared, byteCount: upload.byteCount, core.makeTurn())
        } catch {
            // The rest of the file has not come yet.
            let isTooLarge = error == .fileTooLargeForMemory(upload.byteCount)
            throw .command(isTooLarge ? .fileTooLargeForMemory(Limits.attachmentMemoryByteCount) : error)
        }
        try checkRoom(upload.prepared, byteCount: Int64(byteCount), client: upload.client)
    }

    private func keep(_ plain: [UInt8], of upload: Upload) {
        let isTried = upload.isDeflating || upload.chunkCount.isMultiple(of: 16)
        let chunk = AttachmentChunk(
            message: upload.prepared.message, index: upload.chunkCount, plain: plain, isWorthTrying: isTried)
        if isTried { upload.isDeflating = chunk.isDeflated }
        upload.chunkCount += 1
        shell.writer.keep(chunk, client: upload.client, expiresAt: upload.prepared.expiresAt, upload.prepared.keeping)
    }

    /// Sends a completely uploaded file.
    /// - Parameter send: makes the file's message.
    func commit<Sent>(_ id: UploadID, send: (ClientID, Attachment, PreparedAttachment) throws(NodeError) -> Sent)
        throws(NodeError) -> Sent
    {
        guard let upload = uploads[id] else { throw unknown(id) }
        let sent: Sent
        do throws(NodeError) {
            try shell.sleep.wake(upload.client, .userInteraction)
            storage.refusal = nil
            if !upload.rest.isEmpty { keep(upload.rest, of: upload) }
            upload.rest = []
            if let failure = storage.refusal { throw .store(failure) }
            let attachment = Attachment(
                name: upload.name, mediaType: MediaType.guess(upload.name), byteCount: upload.byteCount,
                hash: upload.hasher.finalize(), text: upload.text, replyTo: upload.replyTo)
            sent = try send(upload.client, attachment, upload.prepared)
        } catch {
            cancel(id)
            throw error
        }
        uploads[id] = nil
        memory.uploading.remove(id)
        upload.whenEnded?()
        return sent
    }

    /// A lock or a disk failure may have ended the upload.
    private func unknown(_ id: UploadID) -> NodeError {
        if store.isLocked { return .locked }
        return storage.trouble.map { .store($0.error) } ?? .unknownUpload(id.description)
    }

    func client(of id: UploadID) -> ClientID? { uploads[id]?.client }

    func whenEnded(_ id: UploadID, _ body: @escaping () -> Void) { uploads[id]?.whenEnded = body }

    func cancel(_ id: UploadID) {
        guard let upload = uploads.removeValue(forKey: id) else { return }
        upload.whenEnded?()
        memory.uploading.remove(id)
        inboxes[upload.client]?.archive.forgetHeldChunks(id)
        shell.writer.storing(upload.client) { inbox throws(StoreError) in
            guard !store.isLocked else { return }
            try inbox.archive.forgetChunks(id, count: upload.chunkCount)
        }
        shell.writer.changed(upload.client)
    }

    /// Cancels the uploads into an inbox that is removed, or reloaded from disk.
    func cancelAll(into client: ClientID) {
        for id in uploads.filter({ $0.value.client == client }).keys.sorted() { cancel(id) }
    }

    func cancelAll() { for id in uploads.keys.sorted() { cancel(id) } }
}

/// Guesses a media type from the file name's extension.
enum MediaType {
    private static let known: [String: String] = [
        "txt": "text/plain", "log": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html",
        "htm": "text/html", "css": "text/css", "js": "text/javascript", "json": "application/json",
        "xml": "application/xml", "yaml": "application/yaml", "yml": "application/yaml", "pdf": "application/pdf",
        "zip": "application/zip", "gz": "application/gzip", "tgz": "application/gzip", "xz": "application/x-xz",
        "zst": "application/zstd", "tar": "application/x-tar", "7z": "application/x-7z-compressed", "png": "image/png",
        "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "svg": "image/svg+xml",
        "avif": "image/avif", "heic": "image/heic", "mp3": "audio/mpeg", "ogg": "audio/ogg", "opus": "audio/ogg",
        "flac": "audio/flac", "wav": "audio/wav", "m4a": "audio/mp4", "mp4": "video/mp4", "webm": "video/webm",
        "mkv": "video/x-matroska", "mov": "video/quicktime",
    ]

    static func guess(_ name: String) -> String {
        guard let dot = name.lastIndex(of: ".") else { return "application/octet-stream" }
        return known[name[name.index(after: dot)...].lowercased()] ?? "application/octet-stream"
    }
}
