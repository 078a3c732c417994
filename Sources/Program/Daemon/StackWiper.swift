import Crypto
import NIOCore

/// Overwrites the unused stack of the node's thread soon after each request and event. Swift keeps strings of up to 15
/// bytes inline, so copies stay on the stack.
final class StackWiper: Sendable {
    private static let delay = TimeAmount.milliseconds(100)

    private let loop: any EventLoop
    private let isScheduled: NIOLoopBoundBox<Bool>

    init(_ loop: any EventLoop) {
        self.loop = loop
        isScheduled = .makeBoxSendingValue(false, eventLoop: loop)
    }

    /// On the loop.
    func wipeSoon() {
        guard !isScheduled.value else { return }
        isScheduled.value = true
        // Run from the loop itself, where the stack is shallowest.
        loop.scheduleTask(in: Self.delay) { [isScheduled] in
            isScheduled.value = false
            wipeStack()
        }
    }
}
