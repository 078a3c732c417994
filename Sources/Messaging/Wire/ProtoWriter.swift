import Cryptography

/// Writes one protobuf message in one buffer. Fields stand in the order of their numbers; one that is empty or 0 is
/// left out, as in proto3, unless it is put `always`: in a `oneof`, a list, and where absence has a meaning.
struct ProtoWriter {
    var bytes: [UInt8] = []

    init(capacity: Int = 0) { bytes.reserveCapacity(capacity) }

    static func bytes(_ write: (inout ProtoWriter) -> Void) -> [UInt8] {
        var writer = ProtoWriter()
        write(&writer)
        return writer.bytes
    }

    private mutating func tag(_ field: Int, _ type: ProtoReader.WireType) {
        varint(UInt64(field) << 3 | UInt64(type.rawValue))
    }

    private mutating func varint(_ value: UInt64) {
        var rest = value
        while rest > 0x7f {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: rest))
    }

    mutating func put(_ field: Int, _ value: some FixedWidthInteger, always: Bool = false) {
        guard value != 0 || always else { return }
        tag(field, .varint)
        varint(UInt64(truncatingIfNeeded: value))
    }

    mutating func put(_ field: Int, _ value: Bool, always: Bool = false) { put(field, value ? 1 : 0, always: always) }

    mutating func put(_ field: Int, _ time: Timestamp) { put(field, time.milliseconds) }

    /// Also 1970.
    mutating func put(_ field: Int, optional time: Timestamp?) {
        if let time { put(field, time.milliseconds, always: true) }
    }

    mutating func put(_ field: Int, _ value: some Collection<UInt8>, always: Bool = false) {
        guard !value.isEmpty || always else { return }
        tag(field, .bytes)
        varint(UInt64(value.count))
        bytes.append(contentsOf: value)
    }

    mutating func put(_ field: Int, _ text: String?) { if let text { put(field, text.utf8) } }

    mutating func put(_ field: Int, each texts: [String]) { for text in texts { put(field, text.utf8, always: true) } }

    mutating func put(_ field: Int, _ id: (some FixedBytes)?) { if let id { put(field, inline: id.value) } }

    mutating func put(_ field: Int, _ key: PublicKey) { put(field, inline: key.value) }

    mutating func put(_ field: Int, _ signature: SchnorrSignature) { put(field, signature.bytes) }

    private mutating func put<Value: InlineBytes>(_ field: Int, inline value: Value) {
        tag(field, .bytes)
        varint(UInt64(Value.byteCount))
        value.append(to: &bytes)
    }

    /// One behind the other in one field.
    mutating func put<ID: FixedBytes>(_ field: Int, joined ids: [ID], always: Bool = false) {
        guard !ids.isEmpty || always else { return }
        tag(field, .bytes)
        varint(UInt64(ids.count * ID.byteCount))
        for id in ids { id.value.append(to: &bytes) }
    }

    /// Writes the length when it is known: in front of the message, which moves.
    mutating func put(_ field: Int, _ write: (inout ProtoWriter) -> Void) {
        tag(field, .bytes)
        let start = bytes.count
        write(&self)
        var length = bytes.count - start
        let last = start + (Int.bitWidth - (length | 1).leadingZeroBitCount + 6) / 7 - 1
        bytes.insert(contentsOf: repeatElement(0, count: last + 1 - start), at: start)
        for index in start...last {
            bytes[index] = UInt8(length & 0x7f) | (index == last ? 0 : 0x80)
            length >>= 7
        }
    }

    mutating func put(_ field: Int, _ message: (some ProtoMessage)?) {
        if let message { put(field) { message.write(to: &$0) } }
    }

    mutating func put(_ field: Int, each messages: [some ProtoMessage]) {
        for message in messages { put(field) { message.write(to: &$0) } }
    }
}

extension ProtoMessage {
    var serialized: [UInt8] { ProtoWriter.bytes { write(to: &$0) } }
    init?(serialized bytes: [UInt8]) throws(WireError) { try self.init(ProtoFields(bytes)) }
}

/// One field of a message: its number, and how a value is written and read. A name is for errors.
struct ProtoField<Value: Sendable>: Sendable {
    typealias Write = @Sendable (Value, inout ProtoWriter) -> Void
    typealias Read = @Sendable (ProtoFields, _ name: String) throws(WireError) -> Value

    let number: Int
    let isNumber: Bool
    fileprivate let write: Write
    fileprivate let read: Read

    init(_ number: Int, isNumber: Bool = false, _ write: @escaping Write, _ read: @escaping Read) {
        (self.number, self.isNumber, self.write, self.read) = (number, isNumber, write, read)
    }
}

/// A message as a table of its fields, in the order of their numbers. It serves writing, reading and limits.
struct ProtoTable<Message: Sendable>: Sendable {
    fileprivate let write: @Sendable (Message, inout ProtoWriter) -> Bool
    fileprivate let read: @Sendable (ProtoFields) throws(WireError) -> Message?

    /// - Parameters:
    ///   - make: returns `nil` for a value of a later version.
    ///   - split: returns `nil` for another body of a `oneof`.
    init<each Value: Sendable>(
        named name: String = "\(Message.self)",
        _ make: @escaping @Sendable (repeat each Value) throws(WireError) -> Message?,
        _ split: @escaping @Sendable (Message) -> (repeat each Value)?, _ field: repeat ProtoField<each Value>
    ) {
        write = { message, writer in
            guard let values = split(message) else { return false }
            repeat (each field).write(each values, &writer)
            return true
        }
        read = { fields throws(WireError) in
            try make(repeat try (each field).read(fields, "\(name).\((each field).number)"))
        }
    }

    /// The last body counts. An unknown body is a value of a later version.
    init(oneOf cases: [ProtoCase<Message>]) {
        let bodies = cases.filter { !$0.isNumber }.map(\.number)
        let numbers = cases.filter(\.isNumber).map(\.number)
        write = { message, writer in cases.contains { $0.table.write(message, &writer) } }
        read = { fields throws(WireError) in
            guard let number = fields.last(of: bodies, numbers: numbers) else { return nil }
            return try cases.first { $0.number == number }?.table.read(fields)
        }
    }

    /// Inside a field of the outer message.
    fileprivate init(_ number: Int, _ inner: ProtoTable) {
        write = { message, writer in
            let start = writer.bytes.count
            var isWritten = false
            writer.put(number) { isWritten = inner.write(message, &$0) }
            if !isWritten { writer.bytes.removeSubrange(start...) }
            return isWritten
        }
        read = { fields throws(WireError) in try inner.read(fields.fields(number)) }
    }
}

/// A body of a `oneof`: a message, or one value.
struct ProtoCase<Message: Sendable>: Sendable {
    fileprivate let number: Int
    fileprivate var isNumber = false
    fileprivate let table: ProtoTable<Message>

    init<each Value: Sendable>(
        _ number: Int, _ make: @escaping @Sendable (repeat each Value) throws(WireError) -> Message?,
        _ split: @escaping @Sendable (Message) -> (repeat each Value)?, _ field: repeat ProtoField<each Value>
    ) {
        self.number = number
        table = ProtoTable(number, ProtoTable(named: "\(Message.self).\(number)", make, split, repeat each field))
    }

    init<Value: Sendable>(
        value make: @escaping @Sendable (Value) throws(WireError) -> Message?,
        _ split: @escaping @Sendable (Message) -> Value?, _ field: ProtoField<Value>
    ) { (number, isNumber, table) = (field.number, field.isNumber, ProtoTable(make, split, field)) }
}

extension ProtoCase where Message: Equatable {
    /// A body without a value.
    init(flag number: Int, _ body: Message) {
        self.init(
            value: { (isSet: Bool) throws(WireError) in try (isSet ? body : nil).known("\(body)") },
            { $0 == body ? true : nil }, .flag(number))
    }
}

/// A message that its table writes and reads.
protocol ProtoTabled: ProtoMessage, Sendable { static var table: ProtoTable<Self> { get } }

extension ProtoTabled {
    func write(to writer: inout ProtoWriter) { _ = Self.table.write(self, &writer) }

    init?(_ fields: ProtoFields) throws(WireError) {
        guard let message = try Self.table.read(fields) else { return nil }
        self = message
    }
}

/// Kinds of fields. With `always` an empty value is written, as in a `oneof`.
extension ProtoField {
    static func number(_ n: Int) -> Self where Value: FixedWidthInteger {
        Self(n, isNumber: true, { $1.put(n, $0) }, { fields, _ in Value(truncatingIfNeeded: fields.number(n)) })
    }

    /// Leaves room for increments.
    static func version(_ n: Int) -> Self where Value == UInt64 {
        Self(n, isNumber: true, { $1.put(n, $0) }, { fields, _ in min(fields.number(n), 1 << 62) })
    }

    /// A `uint32`.
    static func count(_ n: Int, always: Bool = false) -> Self where Value == Int {
        Self(
            n, isNumber: true, { $1.put(n, UInt32(clamping: $0), always: always) },
            { fields, _ in Int(fields.uint32(n)) })
    }

    static func optionalNumber(_ n: Int) -> Self where Value == UInt32? {
        Self(
            n, isNumber: true, { if let value = $0 { $1.put(n, value, always: true) } },
            { fields, _ in fields.optionalNumber(n).map { UInt32(truncatingIfNeeded: $0) } })
    }

    static func flag(_ n: Int) -> Self where Value == Bool {
        Self(n, isNumber: true, { $1.put(n, $0) }, { fields, _ in fields.flag(n) })
    }

    /// - Parameter other: the value of a later version. Without it an unknown number is malformed.
    static func code(_ n: Int, _ other: Value? = nil) -> Self where Value: RawRepresentable, Value.RawValue == UInt32 {
        Self(
            n, isNumber: true, { $1.put(n, $0.rawValue, always: true) },
            { fields, name throws(WireError) in try (Value(rawValue: fields.uint32(n)) ?? other).known(name) })
    }

    static func time(_ n: Int) -> Self where Value == Timestamp {
        Self(n, { $1.put(n, $0) }, { fields, _ in fields.time(n) })
    }

    static func optionalTime(_ n: Int) -> Self where Value == Timestamp? {
        Self(n, { $1.put(n, optional: $0) }, { fields, _ in fields.optionalTime(n) })
    }

    static func text(_ n: Int, atMost limit: Int = .max) -> Self where Value == String {
        Self(n, { $1.put(n, $0) }, { (f, name) throws(WireError) in try f.text(n, name, atMost: limit) })
    }

    static func optionalText(_ n: Int, atMost limit: Int = .max) -> Self where Value == String? {
        Self(n, { $1.put(n, $0) }, { (f, name) throws(WireError) in try f.optionalText(n, name, atMost: limit) })
    }

    static func texts(_ n: Int, atMost limit: Int) -> Self where Value == [String] {
        Self(n, { $1.put(n, each: $0) }, { (f, name) throws(WireError) in try f.texts(n, name, atMost: limit) })
    }

    static func bytes(_ n: Int, count: Int) -> Self where Value == [UInt8] {
        Self(n, { $1.put(n, $0) }, { (f, name) throws(WireError) in try f.bytes(n, name, count: count) })
    }

    static func bytes(_ n: Int, atMost limit: Int = .max, always: Bool = false) -> Self where Value == [UInt8] {
        Self(
            n, { $1.put(n, $0, always: always) }, { (f, name) throws(WireError) in try f.bytes(n, name, atMost: limit) }
        )
    }

    static func id(_ n: Int) -> Self where Value: FixedBytes {
        Self(n, { $1.put(n, $0) }, { (f, name) throws(WireError) in try f.id(n, name) })
    }

    static func optionalID<ID: FixedBytes>(_ n: Int) -> Self where Value == ID? {
        Self(n, { $1.put(n, $0) }, { (f, name) throws(WireError) in try f.optionalID(n, name) })
    }

    /// One behind the other in one field.
    static func ids<ID: FixedBytes>(_ n: Int, atMost limit: Int, always: Bool = false) -> Self where Value == [ID] {
        Self(
            n, { $1.put(n, joined: $0, always: always) },
            { (f, name) throws(WireError) in try f.ids(n, name, atMost: limit) })
    }

    static func key(_ n: Int) -> Self where Value == PublicKey {
        Self(n, { $1.put(n, $0) }, { (f, name) throws(WireError) in try f.key(n, name) })
    }

    static func keys(_ n: Int, atMost limit: Int) -> Self where Value == [PublicKey] {
        each(n, atMost: limit, { $1.put(n, $0) }, ProtoFields.key)
    }

    static func eachID<ID: FixedBytes>(_ n: Int, atMost limit: Int) -> Self where Value == [ID] {
        each(n, atMost: limit, { $1.put(n, $0) }, { (bytes, name) throws(WireError) in try ID(bytes).known(name) })
    }

    static func eachBytes(_ n: Int, atMost limit: Int) -> Self where Value == [[UInt8]] {
        each(n, atMost: limit, { $1.put(n, $0) }, { (bytes, _) in Array(bytes) })
    }

    /// One field for each value.
    private static func each<One: Sendable>(
        _ n: Int, atMost limit: Int, _ write: @escaping @Sendable (One, inout ProtoWriter) -> Void,
        _ read: @escaping @Sendable (ArraySlice<UInt8>, _ name: String) throws(WireError) -> One
    ) -> Self where Value == [One] {
        Self(
            n, { for one in $0 { write(one, &$1) } },
            { (f, name) throws(WireError) in
                try f.all(n, name, atMost: limit, bytes: { (bytes) throws(WireError) in try read(bytes, name) })
            })
    }

    static func signature(_ n: Int) -> Self where Value == SchnorrSignature {
        Self(n, { $1.put(n, $0) }, { (f, name) throws(WireError) in try f.signature(n, name) })
    }

    static func message(_ n: Int) -> Self where Value: ProtoMessage {
        Self(n, { $1.put(n, $0) }, { (f, name) throws(WireError) in try Value(f.fields(n)).known(name) })
    }

    /// The fields of the message stand among those of the outer one.
    static func inline() -> Self where Value: ProtoMessage {
        Self(0, { $0.write(to: &$1) }, { (f, name) throws(WireError) in try Value(f).known(name) })
    }

    /// `nil` for one of a later version.
    static func inlineBody<Message: ProtoMessage>() -> Self where Value == Message? {
        Self(0, { $0?.write(to: &$1) }, { (f, _) throws(WireError) in try Message(f) })
    }

    static func optionalMessage<Message: ProtoMessage>(_ n: Int) -> Self where Value == Message? {
        Self(n, { $1.put(n, $0) }, { (f, _) throws(WireError) in try f.optional(n) })
    }

    static func messages<Message: ProtoMessage>(_ n: Int, atMost limit: Int) -> Self where Value == [Message] {
        Self(n, { $1.put(n, each: $0) }, { (f, name) throws(WireError) in try f.messages(n, name, atMost: limit) })
    }
}

extension Optional {
    func known(_ name: String) throws(WireError) -> Wrapped {
        guard let self else { throw .malformed(name) }
        return self
    }
}
