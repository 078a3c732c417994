import FoundationEssentials

/// Padded Base64 (RFC 4648, section 4), the encoding of bytes on the control socket.
package enum Base64 {
    package static func encode(_ bytes: [UInt8]) -> String { Data(bytes).base64EncodedString() }

    /// `nil` unless `text` is a canonical encoding.
    package static func decode(_ text: String) -> [UInt8]? {
        guard let data = Data(base64Encoded: text), data.base64EncodedString() == text else { return nil }
        return [UInt8](data)
    }
}
