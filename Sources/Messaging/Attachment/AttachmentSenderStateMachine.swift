import DequeModule

/// The chunks of our files that one member requests, and their order (Delivery.md, "Files").
///
/// One chunk of each file in turn, so that a small file does not wait behind a large one.
package struct AttachmentSenderStateMachine: Hashable, Sendable {
    private struct File: Hashable, Sendable {
        let message: MessageID
        let chunkCount: Int
        /// The requested chunks in order; no range is empty.
        var runs: Deque<Range<Int>>
    }

    private var files: Deque<File> = []
    private var meters: [MessageID: ProgressMeter] = [:]

    package init() {}

    package var isIdle: Bool { files.isEmpty }
    package var count: Int { files.reduce(0) { $0 + $1.runs.reduce(0) { $0 + $1.count } } }

    /// - Returns: `false` for an invalid request, or when the queue is full.
    package mutating func request(_ message: MessageID, first: Int, count: Int, chunkCount: Int) -> Bool {
        guard first >= 0, first < chunkCount, (1...Limits.attachmentWindow).contains(count),
            self.count + count <= Limits.attachmentQueueCount
        else { return false }
        let run = first..<min(first + count, chunkCount)
        if let place = files.firstIndex(where: { $0.message == message }) {
            files[place].runs.append(run)
        } else {
            files.append(File(message: message, chunkCount: chunkCount, runs: [run]))
        }
        return true
    }

    package mutating func next() -> (message: MessageID, index: Int, chunkCount: Int)? {
        guard var file = files.popFirst(), let run = file.runs.popFirst() else { return nil }
        let rest = run.dropFirst()
        if !rest.isEmpty { file.runs.prepend(rest) }
        // The file goes behind the others.
        if !file.runs.isEmpty { files.append(file) }
        return (file.message, run.lowerBound, file.chunkCount)
    }

    /// Whether to tell watchers that chunk `index` has gone out.
    package mutating func shows(_ message: MessageID, index: Int, of chunkCount: Int, now: Timestamp) -> Bool {
        if meters.count >= Limits.attachmentQueueCount, meters[message] == nil { meters = [:] }
        let shows = meters[message, default: ProgressMeter()].shows(index + 1, of: chunkCount, now: now)
        if index + 1 >= chunkCount { meters[message] = nil }
        return shows
    }

    package mutating func remove(_ message: MessageID) {
        meters[message] = nil
        files.removeAll { $0.message == message }
    }

    package mutating func linkLost() {
        files = []
        meters = [:]
    }
}
