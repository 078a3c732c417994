import FoundationEssentials

/// Lower-case hexadecimal.
package enum Hex {
    private static let digits = Array("0123456789abcdef".utf8)

    package static func encode(_ bytes: some Sequence<UInt8>) -> String { encode(Array(bytes)) }

    /// Not generic, because a generic call from another module is slow without specialization.
    package static func encode(_ bytes: [UInt8]) -> String {
        String(unsafeUninitializedCapacity: 2 * bytes.count) { text in
            for (index, byte) in bytes.enumerated() {
                text[2 * index] = digits[Int(byte >> 4)]
                text[2 * index + 1] = digits[Int(byte & 15)]
            }
            return 2 * bytes.count
        }
    }

    /// `nil` unless `text` is an even number of hexadecimal digits.
    package static func decode(_ text: some StringProtocol) -> [UInt8]? {
        let digits = Array(text.utf8)
        guard digits.count.isMultiple(of: 2) else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(digits.count / 2)
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard let high = value(digits[index]), let low = value(digits[index + 1]) else { return nil }
            bytes.append(high << 4 | low)
        }
        return bytes
    }

    /// The values of digits in lower case; `nil` for any other character.
    package static func values(_ text: String) -> [UInt8]? {
        let values = text.utf8.compactMap { digit in digits.firstIndex(of: digit).map { UInt8($0) } }
        return values.count == text.utf8.count ? values : nil
    }

    package static func value(_ digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

/// Unpadded base64url (RFC 4648, section 5).
package enum Base64URL {
    package static func encode(_ bytes: [UInt8]) -> String {
        let digits = Data(bytes).base64EncodedData().prefix { $0 != UInt8(ascii: "=") }
        return String(
            decoding: digits.map { digit in
                switch digit {
                case UInt8(ascii: "+"): UInt8(ascii: "-")
                case UInt8(ascii: "/"): UInt8(ascii: "_")
                default: digit
                }
            }, as: UTF8.self)
    }

    /// `nil` for another character, an impossible length, or trailing bits that are not zero (each value has one text).
    package static func decode(_ text: some StringProtocol) -> [UInt8]? {
        var digits = text.utf8.map { digit in
            switch digit {
            case UInt8(ascii: "-"): UInt8(ascii: "+")
            case UInt8(ascii: "_"): UInt8(ascii: "/")
            default: digit
            }
        }
        digits += repeatElement(UInt8(ascii: "="), count: (4 - digits.count % 4) % 4)
        guard let bytes = Data(base64Encoded: Data(digits)).map({ Array($0) }), encode(bytes) == text else {
            return nil
        }
        return bytes
    }
}

package func bigEndian<Number: FixedWidthInteger>(_ number: Number) -> [UInt8] {
    withUnsafeBytes(of: number.bigEndian) { Array($0) }
}

extension RandomAccessCollection where Index == Int {
    /// Binary search for the first element for which `isBehind` holds, in a collection partitioned by it; `endIndex`
    /// for none.
    @inlinable package func partitioningIndex(_ isBehind: (Element) -> Bool) -> Int {
        var (low, high) = (startIndex, endIndex)
        while low < high {
            let middle = low + (high - low) / 2
            if isBehind(self[middle]) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}
