import NIOCore

/// Writes compact JSON on one line, with members sorted by name, so that equal values have equal text.
///
/// Texts come from peers and may reach a terminal. Control characters, line separators and bidirectional controls are
/// therefore escaped.
package struct JSONWriter {
    /// Most lines fit, without a copy to a larger block.
    package var buffer = ByteBufferAllocator().buffer(capacity: 512)
    /// A stack: the members of all objects being written. Each object keeps the index of its first.
    private var members: [MemberPlace] = []

    private struct MemberPlace {
        /// The name, without its quotation marks.
        var name: Range<Int>
        /// Name, colon and value, without the preceding comma.
        var bytes: Range<Int>
    }

    package static func bytes(of value: some JSONWritable) -> [UInt8] {
        var writer = JSONWriter()
        value.write(to: &writer)
        return Array(writer.buffer.readableBytesView)
    }

    package mutating func literal(_ text: StaticString) { buffer.writeStaticString(text) }

    package mutating func integer(_ value: Int64) { buffer.writeString(String(value)) }

    package mutating func number(_ value: Double) {
        if let whole = Int64(exactly: value) {
            integer(whole)
        } else if value.isFinite {
            buffer.writeString(value.description)
        } else {
            // JSON has no infinities or NaN; they become null, which reads as absent.
            literal("null")
        }
    }

    package mutating func string(_ value: String) {
        buffer.writeInteger(UInt8(ascii: "\""))
        var text = value
        text.withUTF8 { escaped($0) }
        buffer.writeInteger(UInt8(ascii: "\""))
    }

    /// Lower-case hexadecimal.
    @inline(__always) mutating func quotedHex(_ byteCount: Int, _ byte: (Int) -> UInt8) {
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: 2 * byteCount + 2) { target in
            target[0] = UInt8(ascii: "\"")
            for index in 0..<byteCount {
                let value = byte(index)
                target[2 * index + 1] = Self.hexDigit(value >> 4)
                target[2 * index + 2] = Self.hexDigit(value & 15)
            }
            target[2 * byteCount + 1] = UInt8(ascii: "\"")
            return 2 * byteCount + 2
        }
    }

    @inline(__always) private static func hexDigit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") - 10 + value
    }

    package mutating func object(_ body: (inout RecordWriter) -> Void) {
        buffer.writeInteger(UInt8(ascii: "{"))
        let first = members.count
        if first == 0 { members.reserveCapacity(8) }
        withUnsafeMutablePointer(to: &self) { writer in
            var fields = RecordWriter(writer: writer, first: first)
            body(&fields)
        }
        sortMembers(from: first)
        members.removeSubrange(first...)
        buffer.writeInteger(UInt8(ascii: "}"))
    }

    fileprivate mutating func member(
        _ name: UnsafeBufferPointer<UInt8>, after first: Int, _ write: (inout JSONWriter) -> Void
    ) {
        if members.count > first { buffer.writeInteger(UInt8(ascii: ",")) }
        let start = buffer.writerIndex
        let count = name.count
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: count + 3) { target in
            target[0] = UInt8(ascii: "\"")
            if let source = name.baseAddress {
                target.baseAddress?.advanced(by: 1).copyMemory(from: source, byteCount: count)
            }
            target[count + 1] = UInt8(ascii: "\"")
            target[count + 2] = UInt8(ascii: ":")
            return count + 3
        }
        write(&self)
        members.append(MemberPlace(name: start + 1..<start + 1 + count, bytes: start..<buffer.writerIndex))
    }

    /// Sorts the members by name, unless they are sorted already.
    private mutating func sortMembers(from first: Int) {
        guard members.count > first + 1, let start = members[first...].first?.bytes.lowerBound,
            (first + 1..<members.count).contains(where: { precedes(members[$0].name, members[$0 - 1].name) })
        else { return }
        let sorted = members[first...].sorted { precedes($0.name, $1.name) }
        guard var moved = buffer.getSlice(at: start, length: buffer.writerIndex - start) else { return }
        // A copy, because a slice shares the storage being written.
        moved = ByteBuffer(bytes: moved.readableBytesView)
        var place = start
        for (index, member) in sorted.enumerated() {
            if index > 0 { place += buffer.setInteger(UInt8(ascii: ","), at: place) }
            moved.moveReaderIndex(to: member.bytes.lowerBound - start)
            guard let bytes = moved.readSlice(length: member.bytes.count) else { return }
            place += buffer.setBuffer(bytes, at: place)
        }
    }

    private func precedes(_ one: Range<Int>, _ other: Range<Int>) -> Bool {
        buffer.withUnsafeReadableBytes { bytes in
            let offset = buffer.readerIndex
            return bytes[one.lowerBound - offset..<one.upperBound - offset].lexicographicallyPrecedes(
                bytes[other.lowerBound - offset..<other.upperBound - offset])
        }
    }

    private mutating func escaped(_ text: UnsafeBufferPointer<UInt8>) {
        // Texts without special bytes are copied whole.
        var start = text.startIndex
        let isSpecial = Self.isSpecial
        while let special = text[start...].firstIndex(where: { isSpecial[Int($0)] }) {
            buffer.writeBytes(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(text)[start..<special]))
            start = special + 1
            switch text[special] {
            case UInt8(ascii: "\""): literal(#"\""#)
            case UInt8(ascii: "\\"): literal(#"\\"#)
            case 0x0A: literal(#"\n"#)
            case 0x0D: literal(#"\r"#)
            case 0x09: literal(#"\t"#)
            case let byte where byte < 0x80: escape(UInt16(byte))
            case let lead:
                let (unit, count) = Self.character(at: special, in: text)
                if let unit, Self.isObeyed(unit) {
                    escape(unit)
                    start = special + count
                } else {
                    buffer.writeInteger(lead)
                }
            }
        }
        buffer.writeBytes(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(text)[start...]))
    }

    /// Bytes that may begin a character to escape.
    private static let isSpecial: [Bool] = (UInt8.min...UInt8.max).map { byte in
        byte < 0x20 || byte == 0x7F || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
            // U+0080…U+00BF, U+0600…U+063F, U+2000…U+2FFF
            || byte == 0xC2 || byte == 0xD8 || byte == 0xE2
    }

    /// C1 controls, line and paragraph separators, bidirectional controls.
    private static func isObeyed(_ unit: UInt16) -> Bool {
        switch unit {
        case 0x80...0x9F, 0x2028, 0x2029: true
        default: Unicode.Scalar(unit)?.changesDirection ?? false
        }
    }

    /// The UTF-16 unit of the two- or three-byte sequence at `position`, and its length.
    private static func character(at position: Int, in text: UnsafeBufferPointer<UInt8>) -> (
        unit: UInt16?, byteCount: Int
    ) {
        let count = text[position] < 0xE0 ? 2 : 3
        guard position + count <= text.endIndex else { return (nil, 1) }
        var unit = UInt16(text[position] & (count == 2 ? 0x1F : 0x0F))
        for byte in text[position + 1..<position + count] { unit = unit << 6 | UInt16(byte & 0x3F) }
        return (unit, count)
    }

    private mutating func escape(_ unit: UInt16) {
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: 6) { target in
            target[0] = UInt8(ascii: "\\")
            target[1] = UInt8(ascii: "u")
            for index in 0..<4 { target[2 + index] = Self.hexDigit(UInt8(unit >> (12 - 4 * index) & 15)) }
            return 6
        }
    }
}

/// Writes the fields of a record as members of an open object.
package struct RecordWriter: FieldVisitor {
    /// Valid while the object is written.
    fileprivate let writer: UnsafeMutablePointer<JSONWriter>
    fileprivate let first: Int

    package mutating func field<Value: JSONConvertible>(_ name: String, _ value: inout Value) { member(name, value) }

    package mutating func field<Value: JSONConvertible>(_ name: String, _ value: inout Value?) {
        if let value { member(name, value) }
    }

    /// - Parameter name: without characters that need escaping.
    package mutating func member(_ name: String, _ value: some JSONWritable) {
        var name = name
        name.withUTF8 { bytes in writer.pointee.member(bytes, after: first) { value.write(to: &$0) } }
    }
}

extension Unicode.Scalar {
    /// An invisible bidirectional control (UAX #9).
    package var changesDirection: Bool {
        switch value {
        case 0x061C, 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: true
        default: false
        }
    }
}
