import Cryptography

/// A datagram before any cryptography (DatagramLinks.md, "Datagrams").
enum DatagramPacket: Hashable {
    /// Below 0x10: differs from STUN, TURN, DTLS, RTP and QUIC (RFC 9443), and from our TCP connections.
    static let protocolByte: UInt8 = 0x0d
    static let version: UInt8 = 1
    static let tokenByteCount = 16
    static let cookieByteCount = 16
    /// Largest sealed knock, and largest answer.
    static let knockByteCount = 1_024
    /// All header bytes are authenticated.
    static let sealedHeaderByteCount = 2 + 1 + 8 + 8

    enum Kind: UInt8 {
        case dial = 1
        case answer, finish, cookie, sealed, knock, reply, observe, observed, punch
    }

    /// Act 1 is longer than a datagram.
    case dial(token: [UInt8], dialer: UInt64, cookie: [UInt8], half: ActHalf)
    case answer(dialer: UInt64, responder: UInt64, actTwo: [UInt8])
    case finish(responder: UInt64, actThree: [UInt8])
    case cookie(dialer: UInt64, cookie: [UInt8])
    case knock(token: [UInt8], asker: UInt64, sealed: [UInt8])
    case reply(asker: UInt64, sealed: [UInt8])
    /// Padded to the length of its answer.
    case observe(token: [UInt8], asker: UInt64)
    case observed(asker: UInt64, high: UInt64, low: UInt64, port: UInt16)
    case punch(nonce: [UInt8])
    /// The rest of the datagram is for the link with this id.
    case sealed(epoch: UInt8, receiver: UInt64, number: UInt64)

    /// `nil` for another protocol, version or length, and for a packet number above 2^62 − 1.
    init?(_ bytes: [UInt8]) {
        guard bytes.count >= 2, bytes[0] == Self.protocolByte, bytes[1] >> 4 == Self.version,
            let kind = Kind(rawValue: bytes[1] & 0x0f)
        else { return nil }
        var reader = ByteReader(bytes, from: 2)
        switch kind {
        case .dial:
            guard let token = reader.array(Self.tokenByteCount), let dialer = reader.number(),
                let number = reader.byte(), number < 2, let length = reader.byte(),
                length == 0 || Int(length) == Self.cookieByteCount, let cookie = reader.array(Int(length)),
                let half = reader.array(ActHalf.byteCount)
            else { return nil }
            self = .dial(token: token, dialer: dialer, cookie: cookie, half: ActHalf(number: number, bytes: half))
        case .answer:
            guard let dialer = reader.number(), let responder = reader.number(),
                let act = reader.array(Act.two.byteCount)
            else { return nil }
            self = .answer(dialer: dialer, responder: responder, actTwo: act)
        case .finish:
            guard let responder = reader.number(), let act = reader.array(Act.three.byteCount) else { return nil }
            self = .finish(responder: responder, actThree: act)
        case .cookie:
            guard let dialer = reader.number(), let cookie = reader.array(Self.cookieByteCount) else { return nil }
            self = .cookie(dialer: dialer, cookie: cookie)
        case .knock:
            guard let token = reader.array(Self.tokenByteCount), let asker = reader.number(),
                (1...Self.knockByteCount).contains(reader.remaining), let sealed = reader.array(reader.remaining)
            else { return nil }
            self = .knock(token: token, asker: asker, sealed: sealed)
        case .reply:
            guard let asker = reader.number(), reader.remaining <= Self.knockByteCount,
                let sealed = reader.array(reader.remaining)
            else { return nil }
            self = .reply(asker: asker, sealed: sealed)
        case .observe:
            guard let token = reader.array(Self.tokenByteCount), let asker = reader.number(), reader.number() != nil
            else { return nil }
            self = .observe(token: token, asker: asker)
        case .observed:
            guard let asker = reader.number(), let high = reader.number(), let low = reader.number(),
                let first = reader.byte(), let second = reader.byte()
            else { return nil }
            self = .observed(asker: asker, high: high, low: low, port: UInt16(first) << 8 | UInt16(second))
        case .punch:
            guard let nonce = reader.array(Punching.nonceByteCount) else { return nil }
            self = .punch(nonce: nonce)
        case .sealed:
            guard let epoch = reader.byte(), let receiver = reader.number(), let number = reader.number(),
                number <= VariableInteger.maximum, reader.remaining >= PacketCipher.overheadByteCount
            else { return nil }
            self = .sealed(epoch: epoch, receiver: receiver, number: number)
            return
        }
        guard reader.remaining == 0 else { return nil }
    }

    /// The datagram; only the header for a sealed one.
    var bytes: [UInt8] {
        func head(_ kind: Kind) -> [UInt8] { [Self.protocolByte, Self.version << 4 | kind.rawValue] }
        switch self {
        case .dial(let token, let dialer, let cookie, let half):
            let numbers = [half.number, UInt8(truncatingIfNeeded: cookie.count)]
            return head(.dial) + token + bigEndian(dialer) + numbers + cookie + half.bytes
        case .answer(let dialer, let responder, let act):
            return head(.answer) + bigEndian(dialer) + bigEndian(responder) + act
        case .finish(let responder, let act): return head(.finish) + bigEndian(responder) + act
        case .cookie(let dialer, let cookie): return head(.cookie) + bigEndian(dialer) + cookie
        case .knock(let token, let asker, let sealed): return head(.knock) + token + bigEndian(asker) + sealed
        case .reply(let asker, let sealed): return head(.reply) + bigEndian(asker) + sealed
        case .observe(let token, let asker): return head(.observe) + token + bigEndian(asker) + bigEndian(UInt64(0))
        case .observed(let asker, let high, let low, let port):
            return head(.observed) + bigEndian(asker) + bigEndian(high) + bigEndian(low) + bigEndian(port)
        case .punch(let nonce): return head(.punch) + nonce
        case .sealed(let epoch, let receiver, let number):
            return head(.sealed) + [epoch] + bigEndian(receiver) + bigEndian(number)
        }
    }

    /// The handshake prologue: magic ‖ version ‖ transport kind ‖ token, as over TCP.
    static func prologue(token: [UInt8]) -> [UInt8] { Array("mayfly".utf8) + [version, protocolByte] + token }
}

/// The first or second half of act 1: number 0 or 1.
struct ActHalf: Hashable {
    static let byteCount = Act.one.byteCount / 2
    let number: UInt8
    let bytes: [UInt8]

    init(number: UInt8, bytes: [UInt8]) {
        self.number = number
        self.bytes = bytes
    }

    init(_ number: UInt8, of actOne: [UInt8]) {
        self.init(number: number, bytes: Array(actOne.dropFirst(Int(number) * Self.byteCount).prefix(Self.byteCount)))
    }

    /// - Precondition: the other half.
    func joined(with other: ActHalf) -> [UInt8] { number < other.number ? bytes + other.bytes : other.bytes + bytes }
}

/// Variable-length integers of RFC 9000, section 16: 1, 2, 4 or 8 bytes, up to 2^62 − 1.
enum VariableInteger {
    static let maximum: UInt64 = (1 << 62) - 1

    static func byteCount(_ value: UInt64) -> Int {
        if value < 1 << 6 { 1 } else if value < 1 << 14 { 2 } else if value < 1 << 30 { 4 } else { 8 }
    }

    /// - Precondition: at most ``maximum``. Our own counters stay far below.
    static func append(_ value: UInt64, to bytes: inout [UInt8]) {
        precondition(value <= maximum, "a variable-length integer has 62 bits")
        if value < 1 << 6 {
            bytes.append(UInt8(value))
        } else if value < 1 << 14 {
            bytes.appendBigEndian(UInt16(value) | 0x4000)
        } else if value < 1 << 30 {
            bytes.appendBigEndian(UInt32(value) | 0x8000_0000)
        } else {
            bytes.appendBigEndian(value | 0xc000_0000_0000_0000)
        }
    }
}

struct ByteReader {
    private let bytes: [UInt8]
    private(set) var index: Int

    init(_ bytes: [UInt8], from index: Int = 0) {
        self.bytes = bytes
        self.index = min(index, bytes.count)
    }

    var remaining: Int { bytes.count - index }

    mutating func byte() -> UInt8? {
        guard remaining > 0 else { return nil }
        defer { index += 1 }
        return bytes[index]
    }

    mutating func number() -> UInt64? {
        guard remaining >= 8 else { return nil }
        defer { index += 8 }
        return bytes.bigEndian(at: index)
    }

    mutating func range(_ count: UInt64) -> Range<Int>? {
        guard count <= UInt64(remaining) else { return nil }
        let start = index
        index += Int(count)
        return start..<index
    }

    mutating func array(_ count: Int) -> [UInt8]? {
        guard count >= 0, let range = range(UInt64(count)) else { return nil }
        return Array(bytes[range])
    }

    /// Accepts encodings longer than necessary (RFC 9000, section 16).
    mutating func variable() -> UInt64? {
        guard remaining > 0 else { return nil }
        let first = bytes[index]
        let count = 1 << Int(first >> 6)
        guard remaining >= count else { return nil }
        var value = UInt64(first & 0x3f)
        for offset in 1..<count { value = value << 8 | UInt64(bytes[index + offset]) }
        index += count
        return value
    }

    mutating func skipZeros() { while index < bytes.count, bytes[index] == 0 { index += 1 } }
}

extension [UInt8] {
    mutating func appendBigEndian(_ number: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: number.bigEndian) { append(contentsOf: $0) }
    }

    /// - Precondition: eight bytes follow from `index`.
    func bigEndian(at index: Int) -> UInt64 {
        var number: UInt64 = 0
        for offset in 0..<8 { number = number << 8 | UInt64(self[index + offset]) }
        return number
    }
}
