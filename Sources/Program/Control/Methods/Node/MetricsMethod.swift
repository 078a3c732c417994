import Control

struct MetricsResult: CodableRecord {
    /// Prometheus text format, version 0.0.4.
    var text = ""
}
