import Control

enum MetricsMethod: ControlMethod {
    static let name = "metrics"
    static let summary = "Returns the node's metrics in the Prometheus text format."
    typealias Params = Nothing

    struct Result: CodableRecord {
        /// Prometheus text format, version 0.0.4.
        var text = ""
    }
}
