import Crypto

/// A cookie that a dialer must show under load before the responder spends a curve operation. It proves that the dialer
/// receives at its source address (like WireGuard's cookie and the token of RFC 9000, section 8.1.2). Stateless: a MAC
/// over address, dialer's id, token and time period.
struct AddressCookie: ~Copyable {
    private let key: SecretBytes
    private let period: Microseconds

    init(key: consuming SecretBytes, period: Microseconds) {
        precondition(key.byteCount == 32, "the key of a MAC")
        self.key = key
        self.period = max(1, period)
    }

    borrowing func make(_ address: DatagramAddress, dialer: UInt64, token: [UInt8], at now: Microseconds) -> [UInt8] {
        make(address, dialer, token, bucket: now / period)
    }

    /// Accepts the current period and the one before.
    borrowing func isValid(
        _ cookie: [UInt8], _ address: DatagramAddress, dialer: UInt64, token: [UInt8], at now: Microseconds
    ) -> Bool {
        let bucket = now / period
        return equalInConstantTime(cookie, make(address, dialer, token, bucket: bucket))
            || equalInConstantTime(cookie, make(address, dialer, token, bucket: bucket - 1))
    }

    private borrowing func make(_ address: DatagramAddress, _ dialer: UInt64, _ token: [UInt8], bucket: Microseconds)
        -> [UInt8]
    {
        let code = key.withBytes {
            HMACSHA256.authenticate(
                key: $0, Array("mayfly/1 cookie".utf8), address.bytes, bigEndian(dialer), token,
                bigEndian(UInt64(bitPattern: bucket)))
        }
        return Array(code.prefix(DatagramPacket.cookieByteCount))
    }
}
