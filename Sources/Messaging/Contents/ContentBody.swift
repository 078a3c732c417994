import Cryptography

/// The payload of content types with fields.
package enum ContentBody: Hashable, Sendable {
    /// ``Content/payload`` holds everything: a text, or a bot's content of another authority.
    case opaque
    case reply(Reply)
    case reaction(Reaction)
    case attachment(Attachment)

    var byteCount: Int {
        switch self {
        case .opaque: 0
        case .reply(let reply): reply.text.utf8.count + 32
        case .reaction(let reaction): reaction.emoji.utf8.count + 32
        case .attachment(let attachment):
            attachment.name.utf8.count + attachment.mediaType.utf8.count + attachment.text.utf8.count + 128
        }
    }
}

/// `mayfly/reply:1.0`: a text that answers a message. The reader need not know that message.
package struct Reply: Hashable, Sendable {
    package var replyTo: MessageID
    /// 1…``Limits/textByteCount`` UTF-8 bytes.
    package var text: String

    package init(replyTo: MessageID, text: String) {
        self.replyTo = replyTo
        self.text = text
    }
}

/// `mayfly/reaction:1.0`: adds a member's emoji to a message, or removes it.
package struct Reaction: Hashable, Sendable {
    package var message: MessageID
    /// 1…``Limits/reactionByteCount`` UTF-8 bytes without control characters.
    package var emoji: String
    package var isRemoved: Bool

    package init(message: MessageID, emoji: String, isRemoved: Bool) {
        (self.message, self.emoji, self.isRemoved) = (message, emoji, isRemoved)
    }

    package static func isEmoji(_ text: String) -> Bool {
        (1...Limits.reactionByteCount).contains(text.utf8.count) && DisplayName.isDisplayable(text)
    }
}

/// `mayfly/attachment:1.0`: a file without its bytes. The receiver requests those in chunks, by message id.
package struct Attachment: Hashable, Sendable {
    /// The sender's name for the file; see ``safeName``. At most ``Limits/fileNameByteCount`` UTF-8 bytes.
    package var name: String
    /// Guessed from the name, such as `image/png`.
    package var mediaType: String
    /// 0…``byteCountLimit``.
    package var byteCount: Int64
    /// SHA-256 of the whole file.
    package var hash: [UInt8]
    /// The sender's caption; may be empty.
    package var text: String
    package var replyTo: MessageID?

    package init(
        name: String, mediaType: String, byteCount: Int64, hash: [UInt8], text: String, replyTo: MessageID? = nil
    ) {
        (self.name, self.mediaType, self.byteCount, self.hash, self.text) = (name, mediaType, byteCount, hash, text)
        self.replyTo = replyTo
    }

    /// The largest file in any configuration, so that chunk numbers stay far from overflow.
    package static let byteCountLimit: Int64 = 1 << 40

    package var chunkCount: Int { Self.chunkCount(byteCount) }

    package static func chunkCount(_ byteCount: Int64) -> Int {
        let size = Int64(Limits.chunkByteCount)
        return Int((min(max(byteCount, 0), byteCountLimit) + size - 1) / size)
    }

    /// Bytes of the file in chunk `index`; 0 beyond its end.
    package func chunkByteCount(_ index: Int) -> Int {
        guard index >= 0, index < chunkCount else { return 0 }
        return min(Limits.chunkByteCount, Int(byteCount) - index * Limits.chunkByteCount)
    }

    /// A safe local file name: visible, without path or control characters, not hidden, and no command-line option.
    package var safeName: String { Self.safeName(name) }

    package static func safeName(_ name: String) -> String {
        var scalars = String.UnicodeScalarView()
        var byteCount = 0
        for scalar in name.unicodeScalars {
            let isKept = scalar.isVisible || joins(scalar) || scalar.properties.generalCategory == .spaceSeparator
            let kept = isKept && scalar != "/" && scalar != "\\" ? scalar : "_"
            byteCount += UTF8.width(kept)
            if byteCount > Limits.fileNameByteCount { break }
            scalars.append(kept)
        }
        let visible = scalars.drop { $0 == "." || $0 == "-" || $0.properties.isWhitespace || joins($0) }
        return visible.isEmpty ? "attachment" : String(String.UnicodeScalarView(visible))
    }

    /// A character that joins others, as in an emoji: zero width (non-)joiners, variation selectors and tags.
    private static func joins(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x200c, 0x200d, 0xfe00...0xfe0f, 0xe0020...0xe007f, 0xe0100...0xe01ef: true
        default: false
        }
    }

    /// Shown by a receiver that does not know attachments.
    var fallback: String {
        let head = "[file \(safeName), \(byteCount) bytes]"
        return text.isEmpty ? head : "\(head) \(text)"
    }
}

package struct AttachmentChunk: Hashable, Sendable {
    package var message: MessageID
    /// From 0; every chunk but the last has ``Limits/chunkByteCount`` bytes.
    package var index: Int
    /// `bytes` are raw DEFLATE (RFC 1951).
    package var isDeflated: Bool
    package var bytes: [UInt8]

    package init(message: MessageID, index: Int, isDeflated: Bool, bytes: [UInt8]) {
        (self.message, self.index, self.isDeflated, self.bytes) = (message, index, isDeflated, bytes)
    }

    /// Deflates a chunk that becomes smaller, as far as its beginning shows.
    /// - Parameter isWorthTrying: `false` keeps it plain.
    package init(message: MessageID, index: Int, plain: [UInt8], isWorthTrying: Bool) {
        let deflated = isWorthTrying && Self.shrinks(plain) ? Deflate.compress(plain, level: 1) : plain
        let helps = deflated.count < plain.count
        self.init(message: message, index: index, isDeflated: helps, bytes: helps ? deflated : plain)
    }

    /// The first 2 KiB decide, because most large files are compressed already.
    private static func shrinks(_ plain: [UInt8]) -> Bool {
        let sample = Array(plain.prefix(2_048))
        return sample.count < 2_048 || Deflate.compress(sample, level: 1).count < sample.count
    }

    /// The bytes of the file; `nil` unless they are exactly `byteCount`, at most ``Limits/chunkByteCount``.
    package func plain(byteCount: Int) -> [UInt8]? {
        guard byteCount > 0, byteCount <= Limits.chunkByteCount else { return nil }
        guard isDeflated else { return bytes.count == byteCount ? bytes : nil }
        guard bytes.count < byteCount else { return nil }
        let plain = inflated(limit: byteCount)
        return plain?.count == byteCount ? plain : nil
    }

    /// The bytes of a deflated chunk; `nil` if they exceed `limit`, which also makes a high ratio harmless.
    package func inflated(limit: Int = Limits.chunkByteCount) -> [UInt8]? {
        try? Deflate.decompress(bytes, limit: limit, ratio: limit)
    }
}

/// `mayfly/receipt:1.0`: what became of messages at their receiver. An acknowledgement, not a receipt, reports arrival.
package struct Receipt: Hashable, Sendable {
    package enum Kind: UInt32, Hashable, Sendable {
        case read = 1
        /// The files exceed the receiver's limit.
        case tooLarge = 2
        /// The bytes of the files do not match the announced hash.
        case damaged = 3
    }

    package var kind: Kind
    /// 1…``Limits/receiptCount``.
    package var messages: [MessageID]

    package init(_ kind: Kind, _ messages: [MessageID]) {
        self.kind = kind
        self.messages = messages
    }
}

/// The state of a message at one member.
package struct Delivery: Hashable, Sendable {
    package var member: PublicKey
    /// ``DeliveryState/queued`` at first, then `mailed`, `delivered`, `read`, `failed` or `expiredUndelivered`.
    package var state: DeliveryState
    /// When we learned of it.
    package var at: Timestamp

    package init(member: PublicKey, state: DeliveryState, at: Timestamp) {
        (self.member, self.state, self.at) = (member, state, at)
    }
}

extension [Delivery] {
    /// Keeps one entry per member. `read` is final: a later acknowledgement does not replace it.
    package mutating func merge(_ said: [Delivery]) {
        if said.isEmpty { return }
        for delivery in said {
            if let index = firstIndex(where: { $0.member == delivery.member }) {
                if self[index].state != .read { self[index] = delivery }
            } else {
                append(delivery)
            }
        }
        sort { $0.member < $1.member }
    }
}

extension Content {
    package var kind: ContentKind { type.family == .attachment ? .attachment : .text }

    /// A reaction, which is shown at another message.
    package var isAnnotation: Bool { if case .reaction = body { true } else { false } }

    package var attachment: Attachment? { if case .attachment(let attachment) = body { attachment } else { nil } }

    package var replyTo: MessageID? {
        switch body {
        case .reply(let reply): reply.replyTo
        case .attachment(let attachment): attachment.replyTo
        case .opaque, .reaction: nil
        }
    }

    /// The text to show, or the fallback of an unknown type.
    package var displayText: String {
        switch body {
        case .reply(let reply): reply.text
        case .attachment(let attachment): attachment.text
        case .opaque where !isUnknown: String(validating: payload, as: UTF8.self) ?? fallback
        case .opaque, .reaction: fallback
        }
    }

    /// This version does not know the type: only the fallback can be shown.
    package var isUnknown: Bool { body == .opaque && type.family != .text && type.family != .systemMessage }
}

extension ContentType {
    /// `nil` unless it reads `authority/type:major.minor`.
    package var parts: (authority: Substring, name: Substring, major: Int, minor: Int)? {
        guard let slash = description.firstIndex(of: "/"), let colon = description.lastIndex(of: ":"), slash < colon
        else { return nil }
        let authority = description[..<slash]
        let name = description[description.index(after: slash)..<colon]
        let version = description[description.index(after: colon)...].split(
            separator: ".", omittingEmptySubsequences: false)
        guard version.count == 2, let major = Self.number(version[0]), let minor = Self.number(version[1]),
            Self.isWord(authority), Self.isWord(name)
        else { return nil }
        return (authority, name, major, minor)
    }

    /// The first minor version of its major version: later ones add fields that a reader may ignore.
    package var family: ContentType {
        // Fast path: most contents are texts, and this is called for every content.
        if self == .text { return self }
        guard let parts, parts.minor != 0 else { return self }
        return ContentType("\(parts.authority)/\(parts.name):\(parts.major).0")
    }

    private static func number(_ text: Substring) -> Int? {
        guard (1...4).contains(text.utf8.count), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return Int(text)
    }

    private static func isWord(_ text: Substring) -> Bool { !text.isEmpty && text.isAlphanumeric(or: ".-_") }
}

extension StringProtocol {
    /// Whether all characters are letters or digits of ASCII, or among `others`.
    package func isAlphanumeric(or others: String) -> Bool {
        utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: others.utf8.contains(byte)
            }
        }
    }
}

extension String {
    /// Cuts between characters to at most `limit` UTF-8 bytes, with an ellipsis where text is missing.
    func shortened(toByteCount limit: Int) -> String {
        guard utf8.count > limit else { return self }
        var result = ""
        var byteCount = 3
        for character in self {
            byteCount += character.utf8.count
            if byteCount > limit { break }
            result.append(character)
        }
        return result + "…"
    }
}
