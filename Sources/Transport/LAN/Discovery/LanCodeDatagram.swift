import Crypto

/// A multicast question for an open code, or its answer (Join.md, "Code on one network"). Both have the same length,
/// so that the answer amplifies nothing.
/// Version and first byte are those of ``LanDatagram``, which has no such kinds and lengths.
package struct LanCodeDatagram: Hashable, Sendable {
    package enum Kind: UInt8, Hashable, Sendable {
        case question = 3
        case answer = 4
    }

    package static let byteCount = 12

    package var kind: Kind
    /// The number of a code, or a port.
    package var number: UInt16
    package var id: UInt64

    package init(_ kind: Kind, number: UInt16, id: UInt64) {
        self.kind = kind
        self.number = number
        self.id = id
    }

    package init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.byteCount, bytes[0] == LanDatagram.version, let kind = Kind(rawValue: bytes[1]) else {
            return nil
        }
        let number = UInt16(bytes[2]) << 8 | UInt16(bytes[3])
        guard number != 0 else { return nil }
        self.init(kind, number: number, id: bytes[4...].reduce(0) { $0 << 8 | UInt64($1) })
    }

    package var bytes: [UInt8] { [LanDatagram.version, kind.rawValue] + bigEndian(number) + bigEndian(id) }
}
