import Crypto

/// The canonical bytes of a signed value. Fields are length-prefixed, so two values never share their bytes.
package struct Transcript {
    private var bytes: [UInt8] = []

    package init() {}

    /// Its length as 64 bits, big-endian, then the bytes.
    package mutating func append(_ field: some Collection<UInt8>) {
        append(UInt64(field.count))
        bytes.append(contentsOf: field)
    }

    package mutating func append(_ field: some FixedBytes) { append(field.bytes) }
    package mutating func append(_ field: PublicKey) { append(field.bytes) }
    /// Milliseconds, as a number.
    package mutating func append(_ field: Timestamp) { append(UInt64(field.milliseconds)) }

    /// 64 bits, big-endian, without a length.
    package mutating func append(_ number: UInt64) {
        withUnsafeBytes(of: number.bigEndian) { bytes.append(contentsOf: $0) }
    }

    /// BIP 340's tagged hash of the fields so far.
    package func digest(_ tag: String) -> [UInt8] { SHA256.tagged(tag, bytes) }
}
