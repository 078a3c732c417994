import NIOCore
import Synchronization

/// What one connection of the control socket has still to send.
///
/// Used on the control loop only; ``backlogByteCount`` also by the service.
final class ControlConnection: @unchecked Sendable {
    // @unchecked: every mutable property is touched on the control loop alone.

    private let channel: any Channel
    /// Lines that wait for ``flush()``.
    private var pending = JSONWriter()
    private var pendingCallCount = 0
    private var pendingEventByteCount = 0
    private var isTouched = false
    /// Writes that the kernel has not taken.
    private var writesInFlight = 0
    /// Bytes of events that the service gave away and the kernel has not taken.
    let backlogByteCount = Atomic(0)
    /// What ends with the client: uploads, and calls that wait. Counted by the service.
    let dependentCount = Atomic(0)
    /// Events are wanted.
    var isStreaming = false
    /// Called when the kernel has the answers of that many calls. For the handler of the connection.
    var written: ((_ callCount: Int) -> Void)?

    init(channel: any Channel) { self.channel = channel }

    /// Lines wait, here or in the channel.
    var hasUnwritten: Bool { writesInFlight > 0 || pending.buffer.readableBytes > 0 }

    /// - Returns: whether it is the first time since ``flush()``.
    func touch() -> Bool {
        defer { isTouched = true }
        return !isTouched
    }

    func add(_ call: ControlCall) {
        call.writeAnswer(to: &pending)
        pendingCallCount += 1
    }

    /// Adds the answer to a request of which no call could be made.
    func add(_ failure: UnreadableRequest) {
        pending.failure(failure.id, failure.error)
        pendingCallCount += 1
    }

    /// A notification that cannot be performed gets no answer.
    func addNothing() { pendingCallCount += 1 }

    func add(_ line: ByteBuffer, isCounted: Bool) {
        pending.buffer.writeImmutableBuffer(line)
        if isCounted { pendingEventByteCount += line.readableBytes }
    }

    /// Gives all lines to the channel at once. A request counts as under way until the kernel has its answer.
    func flush() {
        isTouched = false
        let calls = pendingCallCount
        let events = pendingEventByteCount
        let lines = pending.buffer
        // A new buffer: what an answer said is overwritten when its memory is freed, not kept for the next.
        pending = JSONWriter()
        pendingCallCount = 0
        pendingEventByteCount = 0
        guard lines.readableBytes > 0 else {
            if calls > 0 { written?(calls) }
            return
        }
        writesInFlight += 1
        channel.writeAndFlush(lines).assumeIsolated().whenComplete { [self] _ in
            writesInFlight -= 1
            backlogByteCount.subtract(events, ordering: .relaxed)
            written?(calls)
        }
    }

    /// Writes a failure, then closes.
    func refuse(_ error: ControlError) {
        pending.failure(.null, error)
        let lines = pending.buffer
        pending = JSONWriter()
        channel.writeAndFlush(lines).whenComplete { [channel] _ in channel.close(promise: nil) }
    }

    func close() { channel.close(promise: nil) }

    func resumeReading() { channel.read() }
}
