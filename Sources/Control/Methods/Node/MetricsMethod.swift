package enum MetricsMethod: ControlMethod {
    package static let name = "metrics"
    package static let summary = "Tells the node's figures in Prometheus' text format."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        /// Prometheus text format, version 0.0.4.
        package var text = ""

        package init(text: String) { self.text = text }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("text", &text)
        }
    }
}
