import Foundation
import Glibc
import Testing

@testable import Program

@Suite("Metrics", .script) struct MetricsTests {
    struct Figure {
        let metric: String
        let labels: [String: String]
        let value: Double
    }

    /// Parses the whole text; throws for what Prometheus would refuse.
    private func figures(_ text: String) throws -> [Figure] {
        #expect(text.hasSuffix("\n"))
        var found: [Figure] = []
        var types: [String: String] = [:]
        var seen: Set<String> = []
        for line in text.split(separator: "\n") {
            if line.hasPrefix("# TYPE ") {
                let words = line.split(separator: " ").map(String.init)
                try #require(words.count == 4 && ["counter", "gauge"].contains(words[3]), "\(line)")
                try #require(types.updateValue(words[3], forKey: words[2]) == nil, "\(line) twice")
                continue
            }
            if line.hasPrefix("# HELP ") { continue }
            let match = try #require(
                String(line).wholeMatch(of: /([a-z][a-z0-9_]*)(?:\{([^{}]*)\})? (-?[0-9.]+(?:e[+-]?[0-9]+)?)/),
                "\(line)")
            let metric = String(match.1)
            let type = try #require(types[metric], "\(line) has no type")
            if type == "counter" { #expect(metric.hasSuffix("_total"), "\(line)") }
            var labels: [String: String] = [:]
            for pair in (match.2 ?? "").split(separator: ",") {
                let label = try #require(String(pair).wholeMatch(of: /([a-z]+)="([A-Za-z0-9.+-]*)"/), "\(line)")
                labels[String(label.1)] = String(label.2)
            }
            #expect(seen.insert(line.prefix { $0 != " " }.description).inserted, "\(line) twice")
            found.append(Figure(metric: metric, labels: labels, value: try #require(Double(match.3))))
        }
        return found
    }

    private func figures(of node: TestNode) throws -> [Figure] { try figures(node.ok("metrics")["text"].string ?? "") }

    private func value(_ figures: [Figure], _ metric: String, _ labels: [String: String] = [:]) -> Double? {
        let found = figures.filter { figure in
            figure.metric == metric && labels.allSatisfy { figure.labels[$0.key] == $0.value }
        }
        return found.isEmpty ? nil : found.reduce(0) { $0 + $1.value }
    }

    @Test func `The metrics follow messages, links, joins, agreements, explosions, commits and inboxes`() throws {
        try withHomes { ann, bob in
            try bob.setHooks([(["exploded"], "exit 3")])
            for node in [ann, bob] { try node.start() }
            let before = try figures(of: ann)
            #expect(value(before, "mayfly_messages_total") == 0 && value(before, "mayfly_links") == 0)
            #expect(value(before, "mayfly_locked") == 0 && value(before, "mayfly_inboxes", ["state": "unused"]) == 1)
            #expect(value(before, "mayfly_home_bytes") ?? 0 > 100_000)
            #expect(value(before, "mayfly_disk_free_bytes") ?? 0 > 0)
            #expect(value(before, "process_resident_memory_bytes") ?? 0 > 1_048_576)
            #expect(value(before, "process_open_fds") ?? 0 > 5 && value(before, "process_threads") ?? 0 > 1)
            #expect(value(before, "process_cpu_seconds_total") ?? 0 > 0)
            #expect(value(before, "mayfly_hooks_total") == nil)
            let version = try ann.ok("version")["version"].string
            #expect(before.first { $0.metric == "mayfly_build_info" }?.labels["version"] == version)
            let started = value(before, "process_start_time_seconds") ?? 0
            #expect(abs(started + (value(before, "mayfly_uptime_seconds") ?? 0) - Date().timeIntervalSince1970) < 60)

            try meet(ann, bob)
            try agree(ann, bob, "1d")
            for number in 0..<3 { try say("text \(number)", ann) }
            let (mine, theirs) = (try figures(of: ann), try figures(of: bob))
            for (all, metric, labels, least, isExact) in [
                (mine, "mayfly_messages_total", ["event": "made"], 3, true),
                (mine, "mayfly_messages_total", ["event": "delivered"], 3, true),
                (theirs, "mayfly_messages_total", ["event": "received"], 3, false),
                (theirs, "mayfly_messages_total", ["event": "made"], 0, true), (mine, "mayfly_links", [:], 1, false),
                (mine, "mayfly_links", ["path": "relayed"], 0, true),
                (mine, "mayfly_links_opened_total", [:], 1, false),
                (mine, "mayfly_link_bytes_total", ["direction": "out"], 1_001, false),
                (mine, "mayfly_conversation_events_total", ["event": "memberJoined"], 1, true),
                (theirs, "mayfly_conversation_events_total", ["event": "joined"], 1, true),
                (mine, "mayfly_conversation_events_total", ["event": "agreed"], 1, true),
                (mine, "mayfly_commits_total", ["outcome": "durable"], 4, false),
                (mine, "mayfly_commits_total", ["outcome": "failed"], 0, true),
                (mine, "mayfly_inboxes", ["state": "awake"], 1, true),
            ] as [([Figure], String, [String: String], Double, Bool)] {
                let found = try #require(value(all, metric, labels))
                #expect(isExact ? found == least : found >= least, "\(metric) \(labels)")
            }
            for metric in ["mayfly_commit_seconds_total", "mayfly_commit_seconds_max"] {
                #expect(value(mine, metric) ?? 0 > 0)
            }
            try ann.ok("explode", "room", "--force")
            try bob.wait("exploded")
            try eventually("the hook has failed") {
                value(try figures(of: bob), "mayfly_hooks_total", ["outcome": "failed"]) == 1
            }
            let event = ["event": "exploded"]
            for node in [ann, bob] {
                #expect(value(try figures(of: node), "mayfly_conversation_events_total", event) == 1)
            }
            // A locked node returns its metrics, too.
            try ann.ok("lock")
            #expect(value(try figures(of: ann), "mayfly_locked") == 1)
        }
    }

    @Test func `Refused strangers are counted by reason, and failed dials, too`() throws {
        try withHomes { ann, bob in
            for node in [ann, bob] { try node.start(["--no-udp"]) }
            try meet(ann, bob)
            for bytes in [Array("GET / HTTP/1.1\r\n\r\n".utf8), [UInt8](repeating: 7, count: 200)] {
                let stranger = try LoopbackClient(host: ann.host, port: ann.port)
                try stranger.send(bytes)
                _ = stranger.readAll()
            }
            try eventually("they are counted") {
                value(try figures(of: ann), "mayfly_handshakes_rejected_total", ["reason": "unknownProtocol"]) ?? 0 >= 2
            }
            try bob.stop()
            try eventually("its link has ended, and dials fail") {
                let now = try figures(of: ann)
                return value(now, "mayfly_links") == 0 && value(now, "mayfly_links_closed_total") ?? 0 >= 1
                    && value(now, "mayfly_dials_failed_total") ?? 0 >= 1
            }
        }
    }

    @Test func `No metric or label contains an id, a name, an address or a text`() throws {
        try withHomes("ann", "bob") { nodes in
            let (ann, bob) = (nodes[0], nodes[1])
            for node in [ann, bob] { try node.start() }
            let id = try meet(ann, bob)
            try say("the kettle is behind the door", bob)
            let card = try bob.card()
            try ann.ok("peer", "add", "laboratory", card)
            try ann.ok("peer", "ping", "laboratory", "--timeout", "60")
            let text = try ann.ok("metrics")["text"].string ?? ""
            let shown = try ann.ok("conversation", "show", "room")
            let members = shown["members"].list.compactMap { $0["member"].string }
            let ports = nodes.compactMap { $0.listen?.split(separator: ":").last.map(String.init) }
            let inbox = try #require(shown["inbox"].string)
            let addresses = [ann.host, bob.host, "127.0.0.1"]
            for hidden in addresses + [id, inbox, "kettle", "room", "bob", "laboratory", ann.directory] + members {
                #expect(!text.contains(hidden) && !text.contains(hidden.prefix(8)), "\(hidden)")
            }
            let known: [String: Set<String>] = [
                "version": [try ann.ok("version")["version"].string ?? ""], "carrier": ["tcp", "udp"],
                "path": ["direct", "punched", "relayed"], "direction": ["in", "out"],
                "state": ["awake", "asleep", "unused", "running", "queued"],
                "outcome": ["durable", "failed", "done", "dropped"],
            ]
            for figure in try figures(text) {
                for (label, value) in figure.labels where label != "event" && label != "reason" {
                    #expect(known[label]?.contains(value) == true, "\(label)=\(value)")
                }
                // Constants of the program.
                for label in ["event", "reason"] {
                    guard let value = figure.labels[label] else { continue }
                    #expect(value.wholeMatch(of: /[a-z][A-Za-z]{2,24}/) != nil, "\(label)=\(value)")
                }
                #expect(!ports.contains { figure.labels.values.contains($0) })
            }
        }
    }

    @Test func `GET /metrics is served on a loopback port only if configured: config.json, then --metrics`() throws {
        try withNode { ann in
            #expect(try ann.ok("status")["metrics"].isNull)
            try ann.stop()
            for text in [
                "0.0.0.0:9464", "192.0.2.1:1", "localhost:1", "9464", "127.0.0.1", "127.0.0.1:99999", "[::]:1",
            ] {
                let refused = try #require(try ann.tryStart(["--metrics", text]))
                #expect(refused.code == 64 && refused.message.contains("--metrics"), "\(refused)")
            }
            let right = Program.text("\(ann.home)/config.json")
            func configure(_ value: String) throws {
                let edited = right.replacingOccurrences(of: #""policy""#, with: "\"metrics\": \(value),\n\"policy\"")
                try ann.replace("config.json", with: edited)
            }
            for wrong in [#"{"listen":"0.0.0.0:1"}"#, #"{"listen":7}"#, #"{"lisen":"127.0.0.1:0"}"#, "{}"] {
                try configure(wrong)
                let refused = try #require(try ann.tryStart())
                #expect(refused.code == 1 && refused.message.contains("config.json, line"), "\(wrong): \(refused)")
            }
            try configure(#"{"listen":"\#(ann.host):0"}"#)
            try ann.start()
            let served = try port(of: ann, host: ann.host)
            let answer = try get("/metrics", ann, served)
            #expect(answer.hasPrefix("HTTP/1.1 200 OK\r\n") && answer.contains("text/plain; version=0.0.4"))
            let body = try #require(answer.range(of: "\r\n\r\n").map { String(answer[$0.upperBound...]) })
            #expect(value(try figures(body), "mayfly_locked") == 0)
            #expect(answer.contains("Content-Length: \(body.utf8.count)\r\n"))
            // The setting takes effect at the next start.
            try ann.replace("config.json", with: right)
            #expect(try ann.ok("config", "reload")["pending"].list.compactMap(\.string) == ["metrics"])
            #expect(try get("/metrics", ann, served).hasPrefix("HTTP/1.1 200"))
            try ann.stop()
            #expect(throws: HarnessError.self) { try LoopbackClient(host: ann.host, port: served) }
            try ann.start(["--metrics", "[::1]:0"])
            #expect(try ann.ok("status")["metrics"].string?.hasPrefix("[::1]:") == true)
            // A second node does not get its port.
            let taken = try port(of: ann, host: "[::1]")
            let bob = TestNode(name: "bob", directory: ann.directory)
            try bob.initialise()
            let refused = try #require(try bob.tryStart(["--metrics", "[::1]:\(taken)"]))
            #expect(refused.code == 1 && refused.message.contains("metrics"), "\(refused)")
        }
    }

    @Test("Any request other than GET /metrics is refused, however slow or malformed, and the node goes on")
    func refusals() throws {
        try withHome { ann in
            try ann.start(["--metrics", "\(ann.host):0"])
            let served = try port(of: ann, host: ann.host)
            let cases: [(String, Int)] = [
                ("GET /metrics HTTP/1.0\r\n\r\n", 200), ("GET /metrics HTTP/1.1\nhost: localhost:1\n\n", 400),
                ("GET /metrics HTTP/1.1\r\nHost: \(ann.host):\(served)\r\nAccept: */*\r\n\r\n", 200),
                ("GET / HTTP/1.1\r\n\r\n", 404), ("GET /metrics/ HTTP/1.1\r\n\r\n", 404),
                ("GET /metrics?x HTTP/1.1\r\n\r\n", 404), ("GET /../metrics HTTP/1.1\r\n\r\n", 404),
                ("POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 405), ("HEAD /metrics HTTP/1.1\r\n\r\n", 405),
                ("GET /metrics HTTP/2.0\r\n\r\n", 400), ("GET /metrics\r\n\r\n", 400),
                ("get /metrics HTTP/1.1\r\n\r\n", 400), ("GET http://x/metrics HTTP/1.1\r\n\r\n", 404),
                ("\u{0}\u{1}\u{2}", 400), ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
                ("GET /metrics HTTP/1.1\r\nHost: 192.0.2.7\r\n\r\n", 403),
                ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
                ("GET /metrics HTTP/1.1\r\nX: \(String(repeating: "x", count: 100_000))", 400),
                ("\(String(repeating: "A", count: 5_000))", 400), ("\u{16}\u{3}\u{1} TLS", 400),
                ("{\"jsonrpc\":\"2.0\"}\n", 400),
            ]
            for (request, code) in cases {
                let client = try LoopbackClient(host: ann.host, port: served)
                try client.send(Array(request.utf8))
                let answer = client.readAll()
                #expect(answer.hasPrefix("HTTP/1.1 \(code) "), "\(request.prefix(60).debugDescription): \(answer)")
                #expect(code == 200 || !answer.contains("mayfly_"))
            }
            // Byte by byte.
            let whole = Array("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8)
            let slow = try LoopbackClient(host: ann.host, port: served)
            for byte in whole { try slow.send([byte]) }
            #expect(slow.readAll().hasPrefix("HTTP/1.1 200 "))
            // Silent clients hold a few places until they time out, then others are served.
            var silent: [LoopbackClient] = []
            for _ in 0..<64 { silent.append(try LoopbackClient(host: ann.host, port: served)) }
            #expect(silent.last?.readAll() == "")
            #expect(try ann.ok("status")["running"].bool == true)
            silent = []
            try eventually("their places are free") { try get("/metrics", ann, served).hasPrefix("HTTP/1.1 200") }
        }
    }

    private func port(of node: TestNode, host: String) throws -> UInt16 {
        let endpoint = try node.ok("status")["metrics"].string ?? ""
        try #require(endpoint.hasPrefix("\(host):"), "\(endpoint)")
        return try #require(UInt16(endpoint.dropFirst(host.count + 1)))
    }

    private func get(_ path: String, _ node: TestNode, _ port: UInt16) throws -> String {
        let client = try LoopbackClient(host: node.host, port: port)
        try client.send(Array("GET \(path) HTTP/1.1\r\nHost: \(node.host):\(port)\r\n\r\n".utf8))
        return client.readAll()
    }
}
