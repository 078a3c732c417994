import Crypto

/// The payload of the content types that have fields; `Wire` gives it its bytes.
package enum ContentBody: Hashable, Sendable {
    /// The payload is what it is: a text, or what a bot of another authority has sent.
    case opaque
    case reply(Reply)
    case reaction(Reaction)
    case attachment(Attachment)

    /// Roughly what it takes in memory, in bytes.
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

/// `mayfly/reply:1.0`: a text that answers a message, which need not be known to the reader.
package struct Reply: Hashable, Sendable {
    package var replyTo: MessageID
    /// 1…``Limits/textByteCount`` UTF-8 bytes.
    package var text: String

    package init(replyTo: MessageID, text: String) {
        self.replyTo = replyTo
        self.text = text
    }
}

/// `mayfly/reaction:1.0`: a member's sign at a message, or that it is taken back.
package struct Reaction: Hashable, Sendable {
    package var message: MessageID
    /// 1…``Limits/reactionByteCount`` UTF-8 bytes without control characters.
    package var emoji: String
    package var isRemoved: Bool

    package init(message: MessageID, emoji: String, isRemoved: Bool) {
        self.message = message
        self.emoji = emoji
        self.isRemoved = isRemoved
    }

    package static func isEmoji(_ text: String) -> Bool {
        (1...Limits.reactionByteCount).contains(text.utf8.count) && DisplayName.isDisplayable(text)
    }
}

/// `mayfly/attachment:1.0`: a file. Its bytes are no part of the content: the receiver asks for them, chunk by chunk,
/// under the content's message id.
package struct Attachment: Hashable, Sendable {
    /// As its sender calls it; see ``safeName``. At most ``Limits/fileNameByteCount`` UTF-8 bytes.
    package var name: String
    /// A guess by the name, such as `image/png`.
    package var mediaType: String
    /// 0…``byteCountLimit``.
    package var byteCount: Int64
    /// SHA-256 of the whole file.
    package var hash: [UInt8]
    /// What its sender says to it; may be empty.
    package var text: String
    package var replyTo: MessageID?

    package init(
        name: String, mediaType: String, byteCount: Int64, hash: [UInt8], text: String, replyTo: MessageID? = nil
    ) {
        self.name = name
        self.mediaType = mediaType
        self.byteCount = byteCount
        self.hash = hash
        self.text = text
        self.replyTo = replyTo
    }

    /// Most bytes that a file may have in any configuration: the number of a chunk stays far from overflow.
    package static let byteCountLimit: Int64 = 1 << 40

    /// 0 for an empty file.
    package var chunkCount: Int { Self.chunkCount(byteCount) }

    package static func chunkCount(_ byteCount: Int64) -> Int {
        let size = Int64(Limits.chunkByteCount)
        return Int((min(max(byteCount, 0), byteCountLimit) + size - 1) / size)
    }

    /// How many bytes of the file chunk `index` has; 0 beyond its end.
    package func chunkByteCount(_ index: Int) -> Int {
        guard index >= 0, index < chunkCount else { return 0 }
        return min(Limits.chunkByteCount, Int(byteCount) - index * Limits.chunkByteCount)
    }

    /// The name as a file may have it here: no path, no control characters, nothing hidden, no option, to be seen.
    package var safeName: String { Self.safeName(name) }

    package static func safeName(_ name: String) -> String {
        var scalars = String.UnicodeScalarView()
        var byteCount = 0
        for scalar in name.unicodeScalars {
            let isHarmless: Bool
            switch scalar.value {
            // Control characters, separators of paths, and what changes the direction of writing.
            case 0..<0x20, 0x7f..<0xa0, 0x2f, 0x5c, 0x61c, 0x200e, 0x200f, 0x2028...0x202e, 0x2066...0x2069:
                isHarmless = false
            default: isHarmless = !isInvisible(scalar)
            }
            let kept: Unicode.Scalar = isHarmless ? scalar : "_"
            byteCount += UTF8.width(kept)
            if byteCount > Limits.fileNameByteCount { break }
            scalars.append(kept)
        }
        let visible = scalars.drop { $0 == "." || $0 == "-" || $0.properties.isWhitespace || joins($0) }
        return visible.isEmpty ? "attachment" : String(String.UnicodeScalarView(visible))
    }

    /// What takes no place on a screen, and does nothing to the characters beside it.
    private static func isInvisible(_ scalar: Unicode.Scalar) -> Bool {
        scalar.properties.isDefaultIgnorableCodePoint && !joins(scalar)
    }

    /// What makes one sign of others, an emoji for example: zero width (non-)joiners, variation selectors and tags.
    private static func joins(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x200c, 0x200d, 0xfe00...0xfe0f, 0xe0020...0xe007f, 0xe0100...0xe01ef: true
        default: false
        }
    }

    /// What a receiver that knows no attachments shows.
    var fallback: String {
        let head = "[file \(safeName), \(byteCount) bytes]"
        return text.isEmpty ? head : "\(head) \(text)"
    }
}

/// One piece of a file on its way.
package struct AttachmentChunk: Hashable, Sendable {
    package var message: MessageID
    /// From 0; every chunk but the last has ``Limits/chunkByteCount`` bytes.
    package var index: Int
    /// `bytes` are raw DEFLATE (RFC 1951).
    package var isDeflated: Bool
    package var bytes: [UInt8]

    package init(message: MessageID, index: Int, isDeflated: Bool, bytes: [UInt8]) {
        self.message = message
        self.index = index
        self.isDeflated = isDeflated
        self.bytes = bytes
    }

    /// A chunk of a file, deflated where that is smaller.
    /// - Parameter isWorthTrying: whether to look.
    package init(message: MessageID, index: Int, plain: [UInt8], isWorthTrying: Bool) {
        let deflated = isWorthTrying ? Deflate.compress(plain, level: 1) : plain
        let helps = isWorthTrying && deflated.count < plain.count
        self.init(message: message, index: index, isDeflated: helps, bytes: helps ? deflated : plain)
    }

    /// The bytes of the file; `nil` unless they are exactly `byteCount`, at most ``Limits/chunkByteCount``.
    package func plain(byteCount: Int) -> [UInt8]? {
        guard byteCount > 0, byteCount <= Limits.chunkByteCount else { return nil }
        guard isDeflated else { return bytes.count == byteCount ? bytes : nil }
        guard bytes.count < byteCount else { return nil }
        let plain = inflated(limit: byteCount)
        return plain?.count == byteCount ? plain : nil
    }

    /// The bytes of the file, of a chunk that is deflated.
    /// - Parameter limit: `nil` for more bytes than that. The ratio is no danger then.
    package func inflated(limit: Int = Limits.chunkByteCount) -> [UInt8]? {
        try? Deflate.decompress(bytes, limit: limit, ratio: limit)
    }
}

/// `mayfly/receipt:1.0`: what has become of messages at their receiver. That a message has arrived is said by an
/// acknowledgement instead.
package struct Receipt: Hashable, Sendable {
    package enum Kind: UInt32, Hashable, Sendable {
        /// Its user has seen them.
        case read = 1
        /// The files are larger than it takes.
        case tooLarge = 2
        /// The bytes of the files are not those that were announced.
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

/// What one member has said of a message.
package struct Delivery: Hashable, Sendable {
    package var member: PublicKey
    /// ``DeliveryState/queued`` until it has said something; then ``DeliveryState/delivered``, ``DeliveryState/read``,
    /// ``DeliveryState/failed`` or ``DeliveryState/expiredUndelivered``.
    package var state: DeliveryState
    /// When we learned of it.
    package var at: Timestamp

    package init(member: PublicKey, state: DeliveryState, at: Timestamp) {
        self.member = member
        self.state = state
        self.at = at
    }
}

extension Message {
    /// Takes in what members have said.
    package mutating func merge(_ said: [Delivery]) { deliveries.merge(said) }
}

extension [Delivery] {
    /// Takes in what members have said, one entry each. Whoever has read a message does not fall back to having it.
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

    /// Shown at another message, not as one of its own.
    package var isAnnotation: Bool { if case .reaction = body { true } else { false } }

    package var attachment: Attachment? { if case .attachment(let attachment) = body { attachment } else { nil } }

    /// The message that this one answers.
    package var replyTo: MessageID? {
        switch body {
        case .reply(let reply): reply.replyTo
        case .attachment(let attachment): attachment.replyTo
        case .opaque, .reaction: nil
        }
    }

    /// What to show: the text, or the fallback of an unknown type.
    package var displayText: String {
        switch body {
        case .reply(let reply): return reply.text
        case .attachment(let attachment): return attachment.text
        case .reaction: return fallback
        case .opaque: break
        }
        switch type.family {
        case .text, .systemMessage: return String(validating: payload, as: UTF8.self) ?? fallback
        default: return fallback
        }
    }

    /// The type says nothing to this version: only the fallback can be shown.
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

    /// The first minor version of its major version: later ones add fields that may be left aside.
    package var family: ContentType {
        // Most contents are of it, and every content asks.
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

    private static func isWord(_ text: Substring) -> Bool {
        !text.isEmpty
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }
}

extension String {
    /// At most so many UTF-8 bytes, cut between characters, with an ellipsis where something is missing.
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
