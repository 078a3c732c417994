import Control
import Testing

@testable import Program

/// A record whose fields are not declared in the order of their names.
private protocol SampleFields: JSONRecord, Hashable {
    associatedtype Inner: SampleElement
    var zebra: Int { get set }
    var ant: String? { get set }
    var bees: [Inner] { get set }
    var moth: Bool? { get set }
    var id: HexID { get set }
}

private protocol SampleElement: JSONRecord { var y: Double { get } }

private struct Synthesised: CodableRecord, SampleFields {
    var zebra = 0
    var ant: String?
    var bees: [Inner] = []
    @OrNull var moth: Bool?
    var id = HexID()

    struct Inner: CodableRecord, SampleElement {
        var y = 0.5
        @OrNull var x: Timestamp?
    }
}

private struct Visited: SampleFields {
    var zebra = 0
    var ant: String?
    var bees: [Inner] = []
    @OrNull var moth: Bool?
    var id = HexID()

    struct Inner: SampleElement, Hashable {
        var y = 0.5
        @OrNull var x: Timestamp?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("y", &y)
            try fields.field("x", &_x)
        }
    }

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("zebra", &zebra)
        try fields.field("ant", &ant)
        try fields.field("bees", &bees)
        try fields.field("moth", &_moth)
        try fields.field("id", &id)
    }
}

@Suite struct FieldTests {
    private func text(_ value: some JSONWritable) -> String {
        String(decoding: JSONWriter.bytes(of: value), as: UTF8.self)
    }

    private func read<Value: JSONConvertible>(_ text: String, as type: Value.Type) throws -> Value {
        try JSONReader.read(text.utf8) { reader throws(JSONMismatch) in try Value(from: &reader) }.get()
    }

    private let id = "0123456789abcdef00000000000000ff"

    @Test func `fields are written sorted at every level, and absent ones are omitted`() throws {
        try checkWritten(Synthesised.self)
        try checkWritten(Visited.self)
    }

    private func checkWritten<Sample: SampleFields>(_ type: Sample.Type) throws {
        var sample = Sample()
        sample.zebra = -3
        sample.bees = [Sample.Inner(), Sample.Inner()]
        sample.id = try #require(HexID(hex: id))
        #expect(
            text(sample) == #"{"bees":[{"x":null,"y":0.5},{"x":null,"y":0.5}],"id":"\#(id)","moth":null,"zebra":-3}"#)
        sample.ant = "é\"\u{1}"
        sample.moth = true
        #expect(text(sample).hasPrefix(#"{"ant":"é\"\u0001","bees""#))
        #expect(try read(text(sample), as: Sample.self) == sample)
    }

    @Test func `fields are read in any order, among unknown ones, with escaped names`() throws {
        try checkRead(Synthesised.self)
        try checkRead(Visited.self)
    }

    private func checkRead<Sample: SampleFields>(_ type: Sample.Type) throws {
        let line =
            #" { "id":"\#(id.uppercased())", "new":{"zebra":[1,{"ant":"]}"}]}, "moth":null , "\u0061nt":"x", "bees" : [ { "y" : 2 } ],"zebra":7.0e0}"#
        let sample = try read(line, as: Sample.self)
        #expect(sample.zebra == 7 && sample.ant == "x" && sample.moth == nil)
        #expect(sample.bees.map(\.y) == [2] && sample.id.description == id)
    }

    @Test(arguments: [
        (#"{"bees":[],"id":"ID"}"#, "zebra", "is missing"),
        (#"{"zebra":null,"bees":[],"id":"ID"}"#, "zebra", "expected a whole number, found null"),
        (#"{"zebra":1.5,"bees":[],"id":"ID"}"#, "zebra", "expected a whole number, found a number"),
        (#"{"zebra":1,"bees":[{"y":1},{"y":"1"}],"id":"ID"}"#, "bees[1].y", "expected a number, found a string"),
        (#"{"zebra":1,"bees":[{"y":1},[]],"id":"ID"}"#, "bees[1]", "expected an object, found an array"),
        (#"{"zebra":1,"bees":{},"id":"ID"}"#, "bees", "expected an array, found an object"),
        (
            #"{"zebra":1,"bees":[{"y":1,"x":"noon"}],"id":"ID"}"#, "bees[0].x",
            "expected a date, a time and a time zone such as 2026-11-21T06:53:53Z"
        ), (#"{"zebra":1,"bees":[],"id":"12"}"#, "id", "expected an id of 32 or 64 hexadecimal digits"),
        // With several errors the first field's is reported.
        (#"{"bees":7,"zebra":"x","id":1}"#, "zebra", "expected a whole number, found a string"),
    ]) func `a mismatch names the field and the wrong value's type`(line: String, field: String, message: String) throws
    {
        let line = line.replacing("ID", with: id)
        #expect(throws: JSONMismatch(field, message)) { try read(line, as: Synthesised.self) }
        #expect(throws: JSONMismatch(field, message)) { try read(line, as: Visited.self) }
    }

    @Test func `a number that does not fit its type is refused`() {
        #expect(throws: JSONMismatch("", "expected a whole number, found a number")) {
            try read("9223372036854775808", as: Int.self)
        }
    }

    @Test func `each of many members is found, and a duplicate is refused`() throws {
        let many = (0..<200).map { #""m\#($0)":\#($0)"# }
        let value: JSONValue = try JSONReader.read("{\(many.joined(separator: ","))}".utf8)
        #expect(value["m199"] == 199)
        for twice in [0, 20, 150, 199] {
            let line = "{\((many + [#""\u006d\#(twice)":1"#]).joined(separator: ","))}"
            #expect(throws: JSONSyntaxError.duplicateKey("m\(twice)")) {
                let _: JSONValue = try JSONReader.read(line.utf8)
            }
        }
    }

    @Test func `the same name in two objects is no duplicate`() throws {
        let line = #"{"a":{"a":1,"b":[{"a":2},{"a":3}]},"b":{"a":4}}"#
        let value: JSONValue = try JSONReader.read(line.utf8)
        #expect(value.text == line)
    }

    @Test func `the schema of every record lists all its fields`() {
        /// The fields of terms are those of the record that has them.
        func count(_ record: Any) -> Int {
            Mirror(reflecting: record).children.reduce(0) {
                $0 + ($1.value is LifetimeTermsRecord ? count($1.value) : 1)
            }
        }
        func check<Method: ControlMethod>(_ method: Method) {
            #expect(FieldSchema.fields(of: Method.Params.self).count == count(Method.Params()), "\(method.name)")
            guard let result = Method.Result.self as? any JSONRecord.Type, method.name != "send" else { return }
            #expect(result.schema.fields.count == count(result.init()), "\(method.name)")
        }
        for method in Methods.all { check(method) }
    }

    @Test func `one text is answered with its result, several texts with a result for each`() throws {
        let id = try #require(HexID(hex: id))
        let sent = SentMessage(message: id, state: .sent, stored: true)
        #expect(text(SendResult(sent)) == #"{"expiresAt":null,"message":"\#(self.id)","state":"sent","stored":true}"#)
        let results = SendResult(results: [
            TextOutcome(sent), TextOutcome(ControlError(.usage, "the text is empty")),
            TextOutcome(ControlError(.timedOut, "late", hint: "wait"), message: id),
        ])
        #expect(
            text(results)
                == #"{"results":[{"expiresAt":null,"message":"\#(self.id)","state":"sent","stored":true},{"error":{"kind":"usage","message":"the text is empty"}},{"error":{"hint":"wait","kind":"timedOut","message":"late"},"message":"\#(self.id)"}]}"#
        )
        #expect(try read(text(results), as: SendResult.self) == results)
        #expect(try read(text(SendResult(sent)), as: SendResult.self) == SendResult(sent))
    }
}
