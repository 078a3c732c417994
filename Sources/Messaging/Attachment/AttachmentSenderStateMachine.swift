import DequeModule

/// What one member has asked for of our files, and in which order it goes out (protocol, section 3).
///
///     idle ──request──▶ serving ──last chunk taken──▶ idle
///                        │  ▲ request: behind what waits, as far as there is room
///                        └──┘ chunk taken: the next file's turn
///     serving ──link lost──▶ idle          a file that is taken back leaves the queue
///
/// One chunk of each file in turn, so that a small file does not wait behind a large one.
package struct AttachmentSenderStateMachine: Hashable, Sendable {
    private struct Run: Hashable, Sendable {
        let message: MessageID
        var next: Int
        let end: Int
    }

    private enum State: Hashable, Sendable {
        case idle
        /// Never empty.
        case serving(Deque<Run>)
    }

    private var state = State.idle
    /// How far each file has come, for showing.
    private var meters: [MessageID: ProgressMeter] = [:]

    package init() {}

    package var isIdle: Bool { state == .idle }

    /// Chunks that wait.
    package var count: Int {
        switch state {
        case .idle: 0
        case .serving(let runs): runs.reduce(0) { $0 + $1.end - $1.next }
        }
    }

    /// - Parameter chunkCount: of the file.
    /// - Returns: whether the request makes sense and there is room for it; otherwise it is left aside.
    package mutating func request(_ message: MessageID, first: Int, count: Int, chunkCount: Int) -> Bool {
        guard first >= 0, first < chunkCount, (1...Limits.attachmentWindow).contains(count),
            self.count + count <= Limits.attachmentQueueCount
        else { return false }
        let run = Run(message: message, next: first, end: min(first + count, chunkCount))
        switch state {
        case .idle: state = .serving([run])
        case .serving(var runs):
            state = .idle
            runs.append(run)
            state = .serving(runs)
        }
        return true
    }

    /// The next chunk that may go; `nil` when nothing waits.
    package mutating func next() -> (message: MessageID, index: Int)? {
        switch state {
        case .idle: return nil
        case .serving(var runs):
            state = .idle
            guard var run = runs.popFirst() else { return nil }
            let index = run.next
            run.next += 1
            if run.next < run.end {
                // Behind the other files, but before later requests for its own.
                let place = runs.firstIndex { $0.message == run.message } ?? runs.endIndex
                runs.insert(run, at: place)
            }
            if !runs.isEmpty { state = .serving(runs) }
            return (run.message, index)
        }
    }

    /// Whether to tell watchers that chunk `index` has gone out.
    package mutating func shows(_ message: MessageID, index: Int, of chunkCount: Int, now: Timestamp) -> Bool {
        if meters.count >= Limits.attachmentQueueCount, meters[message] == nil { meters = [:] }
        let shows = meters[message, default: ProgressMeter()].shows(index + 1, of: chunkCount, now: now)
        if index + 1 >= chunkCount { meters[message] = nil }
        return shows
    }

    /// The file is taken back, or delivered.
    package mutating func remove(_ message: MessageID) {
        meters[message] = nil
        switch state {
        case .idle: break
        case .serving(var runs):
            runs.removeAll { $0.message == message }
            state = runs.isEmpty ? .idle : .serving(runs)
        }
    }

    package mutating func linkLost() {
        state = .idle
        meters = [:]
    }
}
