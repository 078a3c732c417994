import Crypto
import NIOCore

/// Overwrites the stack of the node's thread soon after each request and event. Strings of up to 15 bytes have no memory
/// of their own: what is left of them when they are gone is on the stack, until something else takes its place.
final class StackWiper: Sendable {
    private static let delay = TimeAmount.milliseconds(100)

    private let loop: any EventLoop
    private let isScheduled: NIOLoopBoundBox<Bool>

    /// - Parameter loop: on which the node runs.
    init(_ loop: any EventLoop) {
        self.loop = loop
        isScheduled = .makeBoxSendingValue(false, eventLoop: loop)
    }

    /// Called on the loop.
    func wipeSoon() {
        guard !isScheduled.value else { return }
        isScheduled.value = true
        // From the loop itself, where the stack is as empty as it gets.
        loop.scheduleTask(in: Self.delay) { [isScheduled] in
            isScheduled.value = false
            wipeStack()
        }
    }
}
