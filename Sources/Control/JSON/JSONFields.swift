/// A value that writes itself as JSON, without an intermediate tree.
package protocol JSONWritable { func write(to writer: inout JSONWriter) }

/// A value that is read from and written to JSON bytes, without an intermediate tree.
package protocol JSONConvertible: JSONWritable {
    init(from reader: inout JSONReader) throws(JSONMismatch)
    /// Description in `mayfly schema`.
    static var schema: FieldSchema.Shape { get }
}

/// An object with named fields. ``visit(_:)`` serves reading, writing and the schema.
package protocol JSONRecord: JSONConvertible {
    /// Default values, which decoding overwrites.
    init()
    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure)
}

/// Receives the fields of a record.
package protocol FieldVisitor {
    associatedtype Failure: Error

    /// A required field.
    mutating func field<Value: JSONConvertible>(_ name: StaticString, _ value: inout Value) throws(Failure)
    /// An optional field, omitted without a value. Null reads as absent.
    mutating func field<Value: JSONConvertible>(_ name: StaticString, _ value: inout Value?) throws(Failure)
    /// An optional field, null without a value, so that scripts can test for it. Absent reads as null.
    mutating func nullable<Value: JSONConvertible>(_ name: StaticString, _ value: inout Value?) throws(Failure)
}

extension JSONRecord {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        self.init()
        try reader.record(&self)
    }

    package func write(to writer: inout JSONWriter) { writer.record(self) }

    package static var schema: FieldSchema.Shape {
        var fields = FieldCollector()
        var record = Self()
        record.visit(&fields)
        return FieldSchema.Shape(type: "object", fields: fields.found)
    }
}

// MARK: Values

extension String: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.string() }
    package func write(to writer: inout JSONWriter) { writer.string(self) }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "string") }
}

extension Bool: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.bool() }
    package func write(to writer: inout JSONWriter) { writer.literal(self ? "true" : "false") }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "boolean") }
}

extension Int: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.integer() }
    package func write(to writer: inout JSONWriter) { writer.integer(Int64(self)) }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "integer") }
}

extension Int64: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.integer() }
    package func write(to writer: inout JSONWriter) { writer.integer(self) }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "integer") }
}

extension Double: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.double() }
    package func write(to writer: inout JSONWriter) { writer.number(self) }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "number") }
}

extension Array: JSONWritable where Element: JSONWritable {
    package func write(to writer: inout JSONWriter) {
        writer.array(self) { writer, element in element.write(to: &writer) }
    }
}

extension Array: JSONConvertible where Element: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        self = []
        var elements: [Element] = []
        try reader.array { reader throws(JSONMismatch) in elements.append(try Element(from: &reader)) }
        self = elements
    }

    package static var schema: FieldSchema.Shape {
        let element = Element.schema
        return FieldSchema.Shape(type: "[\(element.type)]", values: element.values, fields: element.fields)
    }
}

package protocol JSONChoice: JSONConvertible, CaseIterable, RawRepresentable<String> {}

extension JSONChoice {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        guard let value = Self(rawValue: try reader.string()) else {
            let choices = Self.allCases.map(\.rawValue).joined(separator: ", ")
            throw JSONMismatch("", "expected one of \(choices), found another")
        }
        self = value
    }

    package func write(to writer: inout JSONWriter) { writer.string(rawValue) }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "string", values: allCases.map(\.rawValue)) }
}
