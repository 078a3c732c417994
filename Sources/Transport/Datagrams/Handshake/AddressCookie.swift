import Crypto

/// What a dialer has to show under load before its handshake costs a curve operation: it proves that the dialer receives
/// at the address it sends from (as the cookie of WireGuard, and the token of RFC 9000, section 8.1.2). Nothing is
/// remembered: a MAC over address, dialer's id, token and the time in periods.
struct AddressCookie: ~Copyable {
    private let key: SecretBytes
    private let period: Microseconds

    /// - Precondition: `key` has 32 bytes.
    init(key: consuming SecretBytes, period: Microseconds) {
        precondition(key.byteCount == 32, "the key of a MAC")
        self.key = key
        self.period = max(1, period)
    }

    borrowing func make(_ address: DatagramAddress, dialer: UInt64, token: [UInt8], at now: Microseconds) -> [UInt8] {
        make(address, dialer, token, bucket: now / period)
    }

    /// Whether the cookie is of this period or of the one before.
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
