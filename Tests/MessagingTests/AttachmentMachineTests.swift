import Cryptography
import Messaging
import Testing

private enum ReceiverState: Int, CaseIterable {
    case waiting, receiving, verifying, complete, failed

    /// Four chunks; the first has arrived.
    func make() -> AttachmentReceiverStateMachine {
        var machine = AttachmentReceiverStateMachine(chunkCount: 4) { $0 == 0 }
        if self == .waiting { return machine }
        _ = machine.linkUp(now: noon, window: 2)
        if self == .receiving { return machine }
        for index in 1..<4 { _ = machine.receive(index, now: noon, window: 2) }
        if self == .verifying { return machine }
        _ = machine.verified(self == .complete)
        return machine
    }
}

@Suite struct AttachmentReceiverMachine {
    typealias Action = AttachmentReceiverStateMachine.Action
    private typealias Event = (inout AttachmentReceiverStateMachine) -> [Action]

    @Test func `the receiver answers each event as its state requires`() {
        let retry = noon + Limits.attachmentRetry.first
        /// Actions when waiting, receiving, verifying, complete and failed; the second event is the same again.
        let cells: [(name: String, event: Event, actions: [[Action]], again: [[Action]])] = [
            (
                "a new link", { $0.linkUp(now: noon, window: 2) },
                [[.request(first: 1, count: 2)], [.request(first: 1, count: 2)], [], [], []],
                [[.request(first: 1, count: 2)], [.request(first: 1, count: 2)], [], [], []]
            ),
            (
                "a requested chunk", { $0.receive(1, now: noon, window: 2) },
                [[], [.keep(1), .request(first: 3, count: 1)], [], [], []], [[], [], [], [], []]
            ),
            (
                "a silence", { $0.advance(now: retry - 1, window: 2) + $0.advance(now: retry, window: 2) },
                [[], [.request(first: 1, count: 2)], [], [], []], [[], [], [], [], []]
            ),
        ]
        for cell in cells {
            for state in ReceiverState.allCases {
                var machine = state.make()
                let count = machine.count
                #expect(cell.event(&machine) == cell.actions[state.rawValue], "\(cell.name), \(state)")
                let kept = cell.actions[state.rawValue].count { if case .keep = $0 { true } else { false } }
                #expect(machine.count == count + kept, "\(cell.name), \(state)")
                #expect(cell.event(&machine) == cell.again[state.rawValue], "\(cell.name) again, \(state)")
            }
        }
        for state in ReceiverState.allCases {
            let isUnfinished = state == .waiting || state == .receiving
            var (lost, gone) = (state.make(), state.make())
            #expect((lost.nextDeadline != nil) == (state == .receiving))
            lost.linkLost()
            #expect(lost.nextDeadline == nil && lost.isVerifying == (state == .verifying), "\(state)")
            #expect(lost.hasEnded == (state == .complete || state == .failed), "\(state)")
            #expect(gone.gone() == isUnfinished && gone.linkUp(now: noon, window: 2).isEmpty, "\(state)")
            // The result of a hash comparison counts once.
            for isRight in [true, false] {
                var verified = state.make()
                #expect(verified.verified(isRight) == (state == .verifying), "\(state)")
                #expect(verified.hasEnded == !isUnfinished && verified.verified(isRight) == false, "\(state)")
            }
        }
    }

    @Test(arguments: [-1, 0, 3, 4, 1 << 40]) func `an unrequested chunk changes nothing`(_ index: Int) {
        var machine = ReceiverState.receiving.make()
        let before = machine
        #expect(machine.receive(index, now: noon, window: 2) == [] && machine == before)
    }

    @Test func `a receiver without chunks repeats its request after waits that grow to a limit`() {
        var machine = ReceiverState.receiving.make()
        var now = noon
        let waits = (0..<9).map { _ in
            let wait = (machine.nextDeadline ?? now) - now
            now = now + wait
            #expect(machine.advance(now: now, window: 2) == [.request(first: 1, count: 2)])
            return wait
        }
        #expect(waits == [20, 40, 80, 160, 300, 300, 300, 300, 300].map { $0 * .second })
    }

    @Test func `the receiver does not request chunks it already has`() {
        var machine = AttachmentReceiverStateMachine(chunkCount: 10) { [0, 1, 4, 5, 9].contains($0) }
        #expect(machine.count == 5)
        let actions = machine.linkUp(now: noon, window: 32)
        #expect(actions == [.request(first: 2, count: 2), .request(first: 6, count: 3)])
        // An empty file has no chunks.
        var empty = AttachmentReceiverStateMachine(chunkCount: 0) { _ in false }
        #expect(empty.linkUp(now: noon, window: 32) == [.verify] && empty.verified(true) && empty.hasEnded)
    }

    @Test func `a large file is requested within the window, each chunk once`() {
        let total = 2_048
        var machine = AttachmentReceiverStateMachine(chunkCount: total) { _ in false }
        var wanted: [Int] = []
        var asked: [Int] = []
        var kept: [Int] = []
        var shown = 0
        var isVerified = false
        func perform(_ actions: [Action]) {
            for action in actions {
                switch action {
                case .request(let first, let count):
                    wanted += first..<first + count
                    asked += first..<first + count
                case .keep(let index): kept.append(index)
                case .progress: shown += 1
                case .verify: isVerified = true
                }
            }
        }
        perform(machine.linkUp(now: noon, window: Limits.attachmentWindow))
        while !wanted.isEmpty {
            #expect(wanted.count <= Limits.attachmentWindow)
            perform(machine.receive(wanted.removeFirst(), now: noon, window: Limits.attachmentWindow))
        }
        #expect(asked == Array(0..<total) && kept == asked && isVerified)
        #expect((19...21).contains(shown), "a twentieth each: \(shown)")
    }
}

@Suite struct AttachmentSenderMachine {
    private let ids: [MessageID] = {
        var random = Randomness.seeded(1)
        return (0..<3).map { _ in MessageID.random(&random) }
    }()

    private func drain(_ machine: inout AttachmentSenderStateMachine) -> [String] {
        var result: [String] = []
        while let (message, index, _) = machine.next() {
            result.append("\(ids.firstIndex(of: message) ?? -1):\(index)")
        }
        return result
    }

    @Test func `an idle sender serves a request and ignores other events`() {
        var machine = AttachmentSenderStateMachine()
        let nothing = machine.next()?.index
        #expect(machine.isIdle && nothing == nil)
        machine.linkLost()
        machine.remove(ids[0])
        #expect(machine.isIdle)
        let isTaken = machine.request(ids[0], first: 2, count: 3, chunkCount: 4)
        #expect(isTaken)
        #expect(!machine.isIdle && machine.count == 2, "cut at the end of the file")
        let order = drain(&machine)
        #expect(order == ["0:2", "0:3"])
        #expect(machine.isIdle)
    }

    @Test func `requested files take turns, and each file's chunks go in order`() {
        var machine = AttachmentSenderStateMachine()
        for first in [0, 2] { _ = machine.request(ids[0], first: first, count: 2, chunkCount: 9) }
        _ = machine.request(ids[1], first: 0, count: 2, chunkCount: 2)
        // A removed file leaves the queue, and a lost link empties it.
        _ = machine.request(ids[2], first: 0, count: 1, chunkCount: 1)
        machine.remove(ids[2])
        var lost = machine
        let order = drain(&machine)
        #expect(order == ["0:0", "1:0", "0:1", "1:1", "0:2", "0:3"])
        lost.linkLost()
        #expect(lost.isIdle && drain(&lost).isEmpty)
    }

    @Test(arguments: [(-1, 1), (4, 1), (0, 0), (0, 33), (0, -1), (.max, 1)])
    func `a request with an invalid range is ignored`(_ first: Int, _ count: Int) {
        var machine = AttachmentSenderStateMachine()
        let isTaken = machine.request(ids[0], first: first, count: count, chunkCount: 4)
        #expect(!isTaken)
        #expect(machine.isIdle)
    }

    @Test func `the queue of requested chunks is bounded`() {
        var machine = AttachmentSenderStateMachine()
        var accepted = 0
        for _ in 0..<100 where machine.request(ids[0], first: 0, count: 32, chunkCount: 1_000) { accepted += 1 }
        #expect(accepted == 4 && machine.count == Limits.attachmentQueueCount)
    }
}

@Suite struct AttachmentValues {
    @Test(arguments: [
        ("report.pdf", "report.pdf"), ("../../etc/passwd", "_.._etc_passwd"), ("/etc/passwd", "_etc_passwd"),
        // `rm *` would read the first one as an option.
        ("-rf", "rf"), (". --x-y", "x-y"), ("..", "attachment"), (".bashrc", "bashrc"), ("", "attachment"),
        ("a\u{0}b\nc", "a_b_c"), ("a\\b", "a_b"), ("\u{202E}fdp.exe", "_fdp.exe"), ("grüße 😀.txt", "grüße 😀.txt"),
        (" . x", "x"), ("\u{200b}", "_"), ("\u{feff}a\u{ad}\u{2800}", "_a__"), ("\u{200d}\u{fe0f}", "attachment"),
        ("\u{3164}", "_"), ("\u{3000}", "attachment"), ("👩\u{200d}💻.png", "👩\u{200d}💻.png"),
    ]) func `an attachment's name becomes a harmless file name`(_ name: String, _ safe: String) {
        #expect(Messaging.Attachment.safeName(name) == safe)
    }

    @Test func `a long file name is cut between characters`() {
        let safe = Messaging.Attachment.safeName(String(repeating: "ü", count: 300))
        #expect(safe.utf8.count <= Limits.fileNameByteCount && safe.allSatisfy { $0 == "ü" })
    }

    @Test(arguments: [(0, 0, 0), (1, 1, 1), (61_440, 1, 61_440), (61_441, 2, 1), (122_880, 2, 61_440)])
    func `a file's size determines the number and sizes of its chunks`(_ byteCount: Int64, _ count: Int, _ last: Int) {
        let attachment = Messaging.Attachment(name: "a", mediaType: "", byteCount: byteCount, hash: [], text: "")
        #expect(attachment.chunkCount == count && attachment.chunkByteCount(count - 1) == last)
        for index in [-1, count, .max, .min] { #expect(attachment.chunkByteCount(index) == 0) }
        // No size makes the number overflow.
        typealias File = Messaging.Attachment
        #expect(File.chunkCount(.max) == File.chunkCount(File.byteCountLimit) && File.chunkCount(.min) == 0)
    }

    @Test func `a chunk is deflated only where that helps, and inflates only to its exact size`() throws {
        var random = Randomness.seeded(1)
        let id = MessageID.random(&random)
        let zeros = [UInt8](repeating: 0, count: Limits.chunkByteCount)
        let small = AttachmentChunk(message: id, index: 0, plain: zeros, isWorthTrying: true)
        #expect(small.isDeflated && small.bytes.count < 400 && small.plain(byteCount: zeros.count) == zeros)
        for wrong in [0, -1, 1, zeros.count - 1, zeros.count + 1] { #expect(small.plain(byteCount: wrong) == nil) }
        let noise = random.bytes(1_000)
        let large = AttachmentChunk(message: id, index: 0, plain: noise, isWorthTrying: true)
        #expect(!large.isDeflated && large.plain(byteCount: 1_000) == noise)
        #expect(!AttachmentChunk(message: id, index: 0, plain: zeros, isWorthTrying: false).isDeflated)
        for count in 0..<small.bytes.count {
            let cut = AttachmentChunk(message: id, index: 0, isDeflated: true, bytes: Array(small.bytes[..<count]))
            #expect(cut.plain(byteCount: zeros.count) == nil)
        }
    }

    @Test(arguments: [
        ("mayfly/text:1.0", "mayfly/text:1.0"), ("mayfly/text:1.7", "mayfly/text:1.0"),
        ("mayfly/text:2.3", "mayfly/text:2.0"), ("nonsense", "nonsense"), ("a/b:1", "a/b:1"),
        ("a/b:1.99999", "a/b:1.99999"), ("a/b/c:1.1", "a/b/c:1.1"), ("/b:1.1", "/b:1.1"), ("a/b:1.-1", "a/b:1.-1"),
    ]) func `minor versions of a content type belong to one family`(_ type: String, _ family: String) {
        #expect(ContentType(type).family == ContentType(family))
    }

    @Test(arguments: ["👍", "+1", "ja!", "", " ", "\u{2800}", "a\nb", "\u{7}", String(repeating: "x", count: 65)])
    func `a reaction is an emoji or a short text, visible and without control characters`(_ text: String) {
        #expect(Reaction.isEmoji(text) == ["👍", "+1", "ja!"].contains(text))
    }
}
