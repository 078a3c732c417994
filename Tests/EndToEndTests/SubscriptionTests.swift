import Foundation
import Testing

@Suite("Subscriptions", .script) struct SubscriptionTests {
    private func request(_ id: Int, _ method: String, _ params: String = "{}") -> String {
        #"{"jsonrpc":"2.0","id":\#(id),"method":"\#(method)","params":\#(params)}"# + "\n"
    }

    @Test("A second subscribe replaces the first, also after an unsubscribe: no event comes twice") func once() throws {
        try withRoom { ann, _, _ in
            let room = #"{"conversation":"room"}"#
            let lines = [
                request(1, "subscribe", room), request(2, "subscribe"), request(3, "unsubscribe"),
                request(4, "subscribe"), request(5, "subscribe"),
                request(6, "send", #"{"conversation":"room","text":"one"}"#),
                request(7, "send", #"{"conversation":"room","text":"two","wait":"delivered"}"#),
            ]
            let output = try ann.tool(["rpc"], input: lines.joined(), until: { $0.contains(#""id":7"#) })
            let events = output.split(separator: "\n").compactMap { JSON(line: $0) }.filter {
                $0["method"].string == "event"
            }.compactMap { $0["params"]["cursor"].integer }
            #expect(!events.isEmpty && Set(events).count == events.count, "\(output)")
        }
    }

    @Test("After an unsubscribe no event comes any more, and the connection ends with its input") func unsubscribe()
        throws
    {
        try withRoom { ann, _, _ in
            let lines = [
                request(1, "subscribe", #"{"conversation":"room"}"#), request(2, "unsubscribe"),
                request(3, "send", #"{"conversation":"room","text":"one","wait":"delivered"}"#),
            ]
            let answers = try ann.ok("rpc", input: lines.joined()).lines
            #expect(Set(answers.compactMap { $0["id"].integer }) == [1, 2, 3] && answers.count == 3, "\(answers)")
            // The conversation is not open in front of its user.
            try ann.ok("read", "room")
            try ann.ok("inbox", "sleep", "room")
        }
    }

    @Test("Input may end without a line's end, and a killed node is a lost connection") func rpcEnds() throws {
        try withHomes("ann") { nodes in
            let ann = nodes[0]
            try ann.start()
            let whole = request(1, "version")
            let answer = try ann.ok("rpc", input: whole + whole.dropLast())
            #expect(answer.lines.count == 2 && answer.lines.allSatisfy { $0["result"]["version"].string != nil })
            let many = try ann.ok("rpc", input: String(repeating: request(1, "status"), count: 20_000), seconds: 600)
            #expect(many.output.utf8.count { $0 == 0x0A } == 20_000)
            // Subscribed, so that it goes on after the end of its input.
            let input = "\(ann.directory)/input"
            try Data(request(1, "subscribe").utf8).write(to: URL(fileURLWithPath: input))
            let output = "\(ann.directory)/output"
            let child = try Child(
                [Program.mayfly, "rpc", "--home", ann.home], input: try Descriptor(input, O_RDONLY),
                output: try Descriptor(output, O_WRONLY | O_CREAT), errors: try Descriptor("/dev/null", O_WRONLY))
            try eventually("it is subscribed") { Program.text(output).contains("cursor") }
            ann.crash()
            #expect(child.wait(seconds: 90) == 8)
        }
    }

    @Test(
        "Cursors rise over a restart with the clock set back, and an unknown cursor starts with a gap",
        .enabled(if: TestClock.canBeMade, "needs a C compiler")) func clockSetBack() throws
    {
        try withClock("ann") { nodes, clock in
            let ann = nodes[0]
            clock.pass(TestClock.hour)
            try ann.start()
            try ann.ok("lock")
            try ann.ok("unlock")
            let first = try ann.cursor()
            try ann.stop()
            clock.realtime = 0
            try ann.start()
            try ann.ok("lock")
            try ann.ok("unlock")
            let kept = try ann.ok("watch", "--since", String(first), "--timeout", "0.2").lines
            #expect(!kept.isEmpty && kept.allSatisfy { $0["event"].string != "gap" }, "a clean stop loses nothing")
            let before = try ann.cursor()
            #expect(before > first)
            ann.crash()
            try ann.start()
            try ann.ok("lock")
            try ann.ok("unlock")
            let after = try ann.cursor()
            #expect(after > before)
            #expect(try ann.wait("gap", after: before)["lost"].isNull)
            try ann.wait("unlocked", after: before)
            let events = try ann.ok("watch", "--since", "\(after + 1_000)", "--timeout", "0.2").lines
            #expect(events.first?["event"].string == "gap" && events.first?["lost"].isNull == true)
            #expect(events.last?["cursor"].integer == after, "what is kept was not seen by whoever has that cursor")
        }
    }
}
