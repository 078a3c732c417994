/// One direction's key of a link whose packets carry their number, which is the nonce (Noise, section 11.4). No number
/// may be used twice for sealing: the caller counts.
package struct PacketCipher: ~Copyable, Sendable {
    /// Bytes that sealing adds.
    package static let overheadByteCount = ChaChaPoly.tagByteCount
    private let key: SecretBytes

    /// - Precondition: `key` has 32 bytes.
    package init(key: consuming SecretBytes) {
        precondition(key.byteCount == 32, "a cipher key has 32 bytes")
        self.key = key
    }

    /// Seals all of the packet after its header, in place, and appends the tag. The header is authenticated.
    package borrowing func seal(_ packet: inout [UInt8], headerByteCount: Int, number: UInt64) {
        key.withBytes { ChaChaPoly.seal(&packet, headerByteCount: headerByteCount, key: $0, counter: number) }
    }

    /// Opens a packet in place and takes the tag off.
    /// - Throws: ``NoiseError/notAuthentic``; the packet is then worth nothing.
    package borrowing func open(_ packet: inout [UInt8], headerByteCount: Int, number: UInt64) throws(NoiseError) {
        do {
            try key.withBytes { key throws(AEADError) in
                try ChaChaPoly.open(&packet, headerByteCount: headerByteCount, key: key, counter: number)
            }
        } catch { throw .notAuthentic }
    }
}
