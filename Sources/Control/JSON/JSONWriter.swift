extension JSONValue {
    /// The compact text of this value: one line of UTF-8, keys sorted. What a terminal obeys instead of showing it is
    /// escaped, since lines end there and texts are a peer's: control characters, line separators, and what changes the
    /// direction of writing.
    package var text: String { String(decoding: utf8, as: UTF8.self) }

    /// ``text`` as bytes.
    package var utf8: [UInt8] {
        var output: [UInt8] = []
        append(to: &output)
        return output
    }

    private func append(to output: inout [UInt8]) {
        switch self {
        case .null: output.append(contentsOf: "null".utf8)
        case .bool(let value): output.append(contentsOf: (value ? "true" : "false").utf8)
        case .integer(let value): output.append(contentsOf: String(value).utf8)
        case .number(let value): Self.append(value, to: &output)
        case .string(let value): Self.append(value, to: &output)
        case .array(let elements):
            output.append(UInt8(ascii: "["))
            for (index, element) in elements.enumerated() {
                if index > 0 { output.append(UInt8(ascii: ",")) }
                element.append(to: &output)
            }
            output.append(UInt8(ascii: "]"))
        case .object(let members):
            output.append(UInt8(ascii: "{"))
            for (index, member) in members.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { output.append(UInt8(ascii: ",")) }
                Self.append(member.key, to: &output)
                output.append(UInt8(ascii: ":"))
                member.value.append(to: &output)
            }
            output.append(UInt8(ascii: "}"))
        }
    }

    private static func append(_ value: Double, to output: inout [UInt8]) {
        if let whole = Int64(exactly: value) {
            output.append(contentsOf: String(whole).utf8)
        } else if value.isFinite {
            output.append(contentsOf: value.description.utf8)
        } else {
            // JSON has no infinities; a value that is not a number reads as absent.
            output.append(contentsOf: "null".utf8)
        }
    }

    private static func append(_ value: String, to output: inout [UInt8]) {
        output.append(UInt8(ascii: "\""))
        var text = value
        text.withUTF8 { append($0, to: &output) }
        output.append(UInt8(ascii: "\""))
    }

    private static func append(_ text: UnsafeBufferPointer<UInt8>, to output: inout [UInt8]) {
        // Most texts have nothing to escape: they are copied as they are.
        var start = text.startIndex
        let isSpecial = isSpecial
        while let special = text[start...].firstIndex(where: { isSpecial[Int($0)] }) {
            output.append(contentsOf: text[start..<special])
            start = special + 1
            switch text[special] {
            case UInt8(ascii: "\""): output.append(contentsOf: #"\""#.utf8)
            case UInt8(ascii: "\\"): output.append(contentsOf: #"\\"#.utf8)
            case 0x0A: output.append(contentsOf: #"\n"#.utf8)
            case 0x0D: output.append(contentsOf: #"\r"#.utf8)
            case 0x09: output.append(contentsOf: #"\t"#.utf8)
            case let byte where byte < 0x80: escape(UInt16(byte), to: &output)
            case let lead:
                let (unit, count) = character(at: special, in: text)
                if let unit, isObeyed(unit) {
                    escape(unit, to: &output)
                    start = special + count
                } else {
                    output.append(lead)
                }
            }
        }
        output.append(contentsOf: text[start...])
    }

    /// Bytes with which something begins that may have to be escaped.
    private static let isSpecial: [Bool] = (UInt8.min...UInt8.max).map { byte in
        byte < 0x20 || byte == 0x7F || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
            // U+0080…U+00BF, U+0600…U+063F, U+2000…U+2FFF
            || byte == 0xC2 || byte == 0xD8 || byte == 0xE2
    }

    /// Not a character to be seen: C1 controls, line and paragraph separator, marks of direction.
    private static func isObeyed(_ unit: UInt16) -> Bool {
        switch unit {
        case 0x80...0x9F, 0x2028, 0x2029: true
        default: Unicode.Scalar(unit)?.changesDirection ?? false
        }
    }

    /// The character of two or three bytes that begins there, and how many they are.
    private static func character(
        at position: Int,
        in text: UnsafeBufferPointer<UInt8>
    ) -> (unit: UInt16?, byteCount: Int) {
        let count = text[position] < 0xE0 ? 2 : 3
        guard position + count <= text.endIndex else { return (nil, 1) }
        var unit = UInt16(text[position] & (count == 2 ? 0x1F : 0x0F))
        for byte in text[position + 1..<position + count] { unit = unit << 6 | UInt16(byte & 0x3F) }
        return (unit, count)
    }

    private static func escape(_ unit: UInt16, to output: inout [UInt8]) {
        let digits = String(unit, radix: 16)
        output.append(contentsOf: #"\u"#.utf8)
        output.append(contentsOf: String(repeating: "0", count: 4 - digits.utf8.count).utf8)
        output.append(contentsOf: digits.utf8)
    }
}

extension Unicode.Scalar {
    /// Changes the direction of writing of what follows (UAX #9), and is not seen itself.
    package var changesDirection: Bool {
        switch value {
        case 0x061C, 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: true
        default: false
        }
    }
}
