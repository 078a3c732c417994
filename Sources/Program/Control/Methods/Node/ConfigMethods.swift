import Control

struct ConfigReloadResult: CodableRecord {
    /// Settings of config.json in force now; `peers` stands for peers.json.
    var changed: [String] = []
    /// Settings that take effect at the next start.
    var pending: [String] = []
    /// Settings that a command line option of the node overrides.
    var overridden: [String] = []
}
