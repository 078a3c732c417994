/// `config.reload`: takes over `config.json` and `peers.json`.
package enum ConfigReloadMethod: ControlMethod {
    package static let name = "config.reload"
    package static let summary = "Takes over config.json and peers.json while the node runs, wholly or not at all."
    package typealias Params = Nothing

    /// What `config.reload` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// Settings of config.json that hold now; `peers` for peers.json.
        package var changed: [String] = []
        /// Settings that hold from the next start.
        package var pending: [String] = []
        /// Settings of which the command line of the node says something else, which holds.
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
