import Control
import Cryptography
import Messaging

let textTargets: [FuzzTarget] = [
    FuzzTarget("text", byteCountLimit: 512) {
        let texts = [
            ["tcp://192.0.2.1:7440", "tcp://[2001:db8::1%eth0]:7440", "tcp://example.org:1"],
            ["2026-11-21T06:37:11Z", "1970-01-01T00:00:00.001+23:59", "9999-12-31T23:59:60-00:30"],
            ["2026-11-21T06:37:11.123Z", "2024-02-29 00:00:00z"], ["90s", "1.5h", "30d", "500ms", "0"],
            ["Zm9vYg==", ""], ["Zm9vYg", "_-8"], ["00ffAB"], ["5f3a1c00-1234-4abc-8def-0123456789ab"], ["aB3dE6gH9j"],
            ["ask", "accept-up-to:30d", "accept-up-to:1d:ram"], ["none", "1h"],
            ["mayfly/text:1.0", "example.org/poll:2.1"], ["👩‍👩‍👧‍👦", "a\u{301}"], ["peer-1_a.b"],
            ["grüße/../\u{202e}txt.exe", "..", ""],
        ]
        return texts.enumerated().flatMap { kind, texts in texts.map { [UInt8(kind)] + Array($0.utf8) } }
    } run: { bytes in
        try checkText(Int(bytes.first ?? 0) % 15, String(decoding: bytes.dropFirst(), as: UTF8.self))
    },
    FuzzTarget("contact-card", byteCountLimit: 4_096) {
        let card = ContactCard(
            key: FuzzKeys.ann.publicKey, routingSecret: [UInt8](repeating: 3, count: 32),
            endpoints: [Endpoint(host: "192.0.2.1", port: 7440), Endpoint(host: "2001:db8::1", port: 1)])
        let text = card.description
        let bytes = Base64URL.decode(text.dropFirst(ContactCard.prefix.count)) ?? []
        return [[0] + Array(text.utf8), [1] + bytes.dropLast(4)]
    } run: { bytes in
        let rest = Array(bytes.dropFirst())
        // Odd: the bytes of a card with a valid checksum.
        let isBody = (bytes.first ?? 0) & 1 == 1
        let whole = rest + SHA256.hash(rest).prefix(4)
        let text = isBody ? ContactCard.prefix + Base64URL.encode(whole) : String(decoding: rest, as: UTF8.self)
        guard let card = try? ContactCard(text: text) else { return }
        try comesBack(card) { try ContactCard(text: $0.description) }
        try expect(card.endpoints.count <= Limits.endpointCount, "\(card.endpoints.count) endpoints")
    },
]

private func checkText(_ kind: Int, _ text: String) throws {
    switch kind {
    case 0: try comesBack(Endpoint(text)) { Endpoint($0.description) }
    case 1:
        // The seeds' form has whole seconds.
        guard let time = Messaging.Timestamp(iso8601: text) else { return }
        let back = Messaging.Timestamp(iso8601: time.iso8601)
        try expect(
            back?.milliseconds == time.milliseconds / 1_000 * 1_000, "\(text) comes back as \(String(describing: back))"
        )
    case 2: try comesBack(Timestamp(iso8601: text)) { Timestamp(iso8601: $0.exactISO8601) }
    case 3:
        guard let interval = Interval(text: text) else { return }
        try expect((0...315_360_000_000).contains(interval.milliseconds), "\(text) is \(interval.milliseconds) ms")
    case 4: try comesBack(Base64.decode(text)) { Base64.decode(Base64.encode($0)) }
    case 5: try comesBack(Base64URL.decode(text)) { Base64URL.decode(Base64URL.encode($0)) }
    case 6: try comesBack(Hex.decode(text)) { Hex.decode(Hex.encode($0)) }
    case 7: try comesBack(ClientID(hex: text)) { ClientID(hex: $0.description) }
    case 8: try comesBack(InviteTag(text)) { InviteTag($0.description) }
    case 9: try comesBack(LifetimePolicy(text)) { LifetimePolicy($0.text) }
    case 10: try comesBack(LifetimeCap(text)) { LifetimeCap($0.text) }
    case 11: _ = ContentType(text).family
    case 12: _ = Reaction.isEmoji(text)
    case 13: _ = ConversationID(hex: text)
    default:
        let name = Attachment.safeName(text)
        try expect(!name.isEmpty && !name.contains("/") && !name.hasPrefix("."), "\(name) is no file name")
        try expect(name.utf8.count <= Limits.fileNameByteCount, "a name of \(name.utf8.count) bytes")
    }
}
