import Adversary
import Glibc
import Synchronization

final class Watcher: Sendable {
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

    private let isOver = Mutex(false)

    /// Watches a node during `body`.
    func watch<Result>(_ node: NodeProcess, during body: () throws -> Result) rethrows -> (Result, Figures) {
        nonisolated(unsafe) let node = node
        let figures = Background { [self] in
            var figures = Figures()
            while !isOver.withLock({ $0 }) {
                figures.memory.append((try? node.memory()) ?? 0)
                figures.descriptors = max(figures.descriptors, node.descriptors)
                usleep(200_000)
            }
            return figures
        }
        let result = try body()
        isOver.withLock { $0 = true }
        return (result, figures.wait())
    }
}
