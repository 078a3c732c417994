/// Metrics in Prometheus text format, version 0.0.4.
struct MetricsText {
    enum Kind: String { case counter, gauge }

    struct Sample {
        let labels: [(name: String, value: String)]
        let value: Double

        init(_ value: some BinaryInteger, _ labels: (name: String, value: String)...) {
            self.labels = labels
            self.value = Double(value)
        }

        init(_ value: Double, _ labels: (name: String, value: String)...) {
            self.labels = labels
            self.value = value
        }

        fileprivate var text: String {
            // Larger values exceed the exact integers of a `Double`; no metric reaches them in a node's life.
            value == value.rounded() && abs(value) < 9e15 ? String(Int64(value)) : String(value)
        }
    }

    private(set) var text = ""

    mutating func add(_ name: String, _ kind: Kind, _ help: String, _ samples: [Sample]) {
        guard !samples.isEmpty else { return }
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
        for sample in samples {
            let labels = sample.labels.map { "\($0.name)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
            text += "\(name)\(labels.isEmpty ? "" : "{\(labels)}") \(sample.text)\n"
        }
    }

    mutating func counter(_ name: String, _ help: String, _ samples: [Sample]) { add(name, .counter, help, samples) }
    mutating func gauge(_ name: String, _ help: String, _ samples: [Sample]) { add(name, .gauge, help, samples) }

    static func samples(_ counts: [String: Int]) -> [Sample] {
        counts.keys.sorted().map { Sample(counts[$0] ?? 0, ("reason", $0)) }
    }

    private static func escaped(_ value: String) -> String {
        String(
            value.flatMap { character -> [Character] in
                switch character {
                case "\\": ["\\", "\\"]
                case "\"": ["\\", "\""]
                case "\n": ["\\", "n"]
                default: [character]
                }
            })
    }
}
