import NIOCore
import Synchronization

/// Output buffer of one connection.
///
/// Used on the control loop; the two atomic counters also on the service's loop.
final class ControlConnection: @unchecked Sendable {
    // @unchecked: mutable state is confined to the control loop.

    private let channel: any Channel
    /// Lines queued for ``flush()``.
    private var pending = JSONWriter()
    private var pendingCallCount = 0
    private var pendingEventByteCount = 0
    private var isTouched = false
    /// Writes without a completion.
    private var writesInFlight = 0
    /// Bytes of events between the service and the kernel.
    let backlogByteCount = Atomic(0)
    /// Uploads and waiting calls, which end with the client. The service counts them.
    let dependentCount = Atomic(0)
    /// True while a subscription is open.
    var isStreaming = false
    /// For the connection's handler: the kernel took the answers of that many calls.
    var written: ((_ callCount: Int) -> Void)?

    init(channel: any Channel) { self.channel = channel }

    var hasUnwritten: Bool { writesInFlight > 0 || pending.buffer.readableBytes > 0 }

    /// - Returns: true on the first call since ``flush()``.
    func touch() -> Bool {
        defer { isTouched = true }
        return !isTouched
    }

    func add(_ call: ControlCall) {
        call.writeAnswer(to: &pending)
        pendingCallCount += 1
    }

    func add(_ failure: UnreadableRequest) {
        pending.failure(failure.id, failure.error)
        pendingCallCount += 1
    }

    /// Counts a notification that failed: it gets no answer.
    func addNothing() { pendingCallCount += 1 }

    func add(_ line: ByteBuffer, isCounted: Bool) {
        pending.buffer.writeImmutableBuffer(line)
        if isCounted { pendingEventByteCount += line.readableBytes }
    }

    /// Writes all queued lines at once. A request stays in flight until the kernel takes its answer.
    func flush() {
        isTouched = false
        let calls = pendingCallCount
        let events = pendingEventByteCount
        let lines = pending.buffer
        // A new buffer: freed memory is overwritten, so the text of an answer does not linger.
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
