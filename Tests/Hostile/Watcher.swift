import Adversary
import Foundation
import Glibc

final class Watcher: @unchecked Sendable {
    struct Figures: Sendable {
        /// MiB, five times a second.
        var memory: [Double] = []
        var descriptors = 0

        var peak: Double { memory.max() ?? 0 }
        /// Values at each tenth of the time.
        var course: [Double] {
            guard let last = memory.indices.last else { return [] }
            return (0...10).map { memory[last * $0 / 10] }
        }
    }

    private let node: NodeProcess
    private let lock = NSLock()
    private var isOver = false
    private var figures = Figures()
    private let done = DispatchSemaphore(value: 0)

    init(_ node: NodeProcess) {
        self.node = node
        Thread.detachNewThread { [self] in
            while !lock.withLock({ isOver }) {
                let seen = ((try? self.node.memory()) ?? 0, self.node.descriptors)
                lock.withLock {
                    figures.memory.append(seen.0)
                    figures.descriptors = max(figures.descriptors, seen.1)
                }
                usleep(200_000)
            }
            done.signal()
        }
    }

    func end() -> Figures {
        lock.withLock { isOver = true }
        done.wait()
        return figures
    }
}
