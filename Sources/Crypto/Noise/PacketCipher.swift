/// One direction's key of a packet link. A packet carries its number, which is the nonce (Noise, section 11.4). The
/// caller must not seal two packets with one number.
package struct PacketCipher: ~Copyable, Sendable {
    package static let overheadByteCount = ChaChaPoly.tagByteCount
    private let key: SecretBytes

    package init(key: consuming SecretBytes) {
        precondition(key.byteCount == 32, "a cipher key has 32 bytes")
        self.key = key
    }

    /// Seals the packet behind its header in place, authenticates the header and appends the tag.
    package borrowing func seal(_ packet: inout [UInt8], headerByteCount: Int, number: UInt64) {
        key.withBytes { ChaChaPoly.seal(&packet, headerByteCount: headerByteCount, key: $0, counter: number) }
    }

    /// Opens a packet in place and removes the tag.
    /// - Throws: ``NoiseError/notAuthentic``; the packet is then invalid.
    package borrowing func open(_ packet: inout [UInt8], headerByteCount: Int, number: UInt64) throws(NoiseError) {
        do {
            try key.withBytes { key throws(AEADError) in
                try ChaChaPoly.open(&packet, headerByteCount: headerByteCount, key: key, counter: number)
            }
        } catch { throw .notAuthentic }
    }
}
