package enum ConfigReloadMethod: ControlMethod {
    package static let name = "config.reload"
    package static let summary = "Takes over config.json and peers.json while the node runs, wholly or not at all."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        /// Settings of config.json in force now; `peers` stands for peers.json.
        package var changed: [String] = []
        /// Settings that take effect at the next start.
        package var pending: [String] = []
        /// Settings that a command line option of the node overrides.
        package var overridden: [String] = []

        package init(changed: [String], pending: [String], overridden: [String]) {
            self.changed = changed
            self.pending = pending
            self.overridden = overridden
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("changed", &changed)
            try fields.field("pending", &pending)
            try fields.field("overridden", &overridden)
        }
    }
}
