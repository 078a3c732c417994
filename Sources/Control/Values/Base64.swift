/// Padded Base64 (RFC 4648, section 4), the encoding of bytes on the control socket.
package enum Base64 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    private static let values: [UInt8] = {
        var values = [UInt8](repeating: 0xff, count: 256)
        for (value, character) in alphabet.enumerated() { values[Int(character)] = UInt8(value) }
        return values
    }()

    package static func encode(_ bytes: [UInt8]) -> String {
        String(unsafeUninitializedCapacity: (bytes.count + 2) / 3 * 4) { output in
            var position = 0
            var start = 0
            alphabet.withUnsafeBufferPointer { alphabet in
                while start < bytes.count {
                    let left = bytes.count - start
                    let second = left > 1 ? bytes[start + 1] : 0
                    let third = left > 2 ? bytes[start + 2] : 0
                    let word = UInt32(bytes[start]) << 16 | UInt32(second) << 8 | UInt32(third)
                    output[position] = alphabet[Int(word >> 18)]
                    output[position + 1] = alphabet[Int(word >> 12 & 63)]
                    output[position + 2] = left > 1 ? alphabet[Int(word >> 6 & 63)] : UInt8(ascii: "=")
                    output[position + 3] = left > 2 ? alphabet[Int(word & 63)] : UInt8(ascii: "=")
                    position += 4
                    start += 3
                }
            }
            return position
        }
    }

    /// `nil` unless `text` is a canonical encoding.
    package static func decode(_ text: String) -> [UInt8]? {
        var text = text
        return text.withUTF8 { input in
            guard input.count.isMultiple(of: 4) else { return nil }
            guard !input.isEmpty else { return [] }
            let padding =
                input[input.count - 1] != UInt8(ascii: "=") ? 0 : input[input.count - 2] != UInt8(ascii: "=") ? 1 : 2
            let digitCount = input.count - padding
            var isRight = true
            let bytes = [UInt8](unsafeUninitializedCapacity: input.count / 4 * 3) { output, count in
                values.withUnsafeBufferPointer { values in
                    var word: UInt32 = 0
                    for position in 0..<digitCount {
                        let value = values[Int(input[position])]
                        if value == 0xff {
                            isRight = false
                            return
                        }
                        word = word << 6 | UInt32(value)
                        if position & 3 == 3 {
                            output[count] = UInt8(truncatingIfNeeded: word >> 16)
                            output[count + 1] = UInt8(truncatingIfNeeded: word >> 8)
                            output[count + 2] = UInt8(truncatingIfNeeded: word)
                            count += 3
                            word = 0
                        }
                    }
                    switch padding {
                    case 1:
                        output[count] = UInt8(truncatingIfNeeded: word >> 10)
                        output[count + 1] = UInt8(truncatingIfNeeded: word >> 2)
                        count += 2
                        // A canonical encoding has zero padding bits.
                        if word & 3 != 0 { isRight = false }
                    case 2:
                        output[count] = UInt8(truncatingIfNeeded: word >> 4)
                        count += 1
                        if word & 15 != 0 { isRight = false }
                    default: break
                    }
                }
            }
            return isRight ? bytes : nil
        }
    }
}
