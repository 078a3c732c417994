/// One field of a method's parameters or result, as `mayfly schema` prints it.
package struct FieldSchema: Hashable, Sendable {
    package let name: String
    /// `string`, `boolean`, `integer`, `number`, `timestamp`, `interval`, `any`, `object`, or one of these in brackets.
    package let type: String
    /// The field may be absent or null.
    package let isOptional: Bool
    /// The values of an enumeration.
    package let values: [String]
    /// The fields of an object, or of the objects in an array.
    package let fields: [FieldSchema]

    /// The schema of a value without its name.
    package struct Shape: Hashable, Sendable {
        package var type: String
        package var values: [String] = []
        package var fields: [FieldSchema] = []
    }

    package init(name: String, shape: Shape, isOptional: Bool) {
        self.name = name
        self.type = shape.type
        self.isOptional = isOptional
        self.values = shape.values
        self.fields = shape.fields
    }

    /// The fields of a record; empty for other types.
    package static func fields<Value: JSONConvertible>(of type: Value.Type) -> [FieldSchema] { type.schema.fields }
}

struct FieldCollector: FieldVisitor {
    var found: [FieldSchema] = []

    mutating func field<Value: JSONConvertible>(_ name: String, _ value: inout Value) {
        found.append(FieldSchema(name: name, shape: Value.schema, isOptional: Value.absent != nil))
    }

    mutating func field<Value: JSONConvertible>(_ name: String, _ value: inout Value?) {
        found.append(FieldSchema(name: name, shape: Value.schema, isOptional: true))
    }
}
