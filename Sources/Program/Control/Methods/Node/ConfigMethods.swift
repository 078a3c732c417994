import Control

enum ConfigReloadMethod: ControlMethod {
    static let name = "config.reload"
    static let summary = "Reloads config.json and peers.json while the node runs, completely or not at all."
    typealias Params = Nothing

    struct Result: CodableRecord {
        /// Settings of config.json in force now; `peers` stands for peers.json.
        var changed: [String] = []
        /// Settings that take effect at the next start.
        var pending: [String] = []
        /// Settings that a command line option of the node overrides.
        var overridden: [String] = []
    }
}
