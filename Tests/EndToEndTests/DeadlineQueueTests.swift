import NIOCore
import NIOEmbedded
import Testing

@testable import Program

@Suite("Deadlines") struct DeadlineQueueTests {
    private final class Told { var numbers: [Int] = [] }

    @Test func `Deadlines pass in time order, for any order of insertion, and cancelled ones never`() {
        let loop = EmbeddedEventLoop()
        let queue = DeadlineQueue(loop)
        let told = Told()
        var names: [Int: UInt64] = [:]
        for seconds in [30, 10, 20, 10, 40] {
            names[seconds] = queue.add(after: .seconds(Int64(seconds))) { told.numbers.append(seconds) }
        }
        loop.advanceTime(by: .seconds(9))
        #expect(told.numbers.isEmpty && queue.count == 5)
        loop.advanceTime(by: .seconds(1))
        #expect(told.numbers == [10, 10])
        queue.remove(names[20] ?? 0)
        loop.advanceTime(by: .seconds(25))
        #expect(told.numbers == [10, 10, 30])
        // A new earliest deadline moves the timer.
        _ = queue.add(after: .seconds(1)) { told.numbers.append(1) }
        loop.advanceTime(by: .seconds(1))
        #expect(told.numbers == [10, 10, 30, 1])
        loop.advanceTime(by: .seconds(10))
        #expect(told.numbers == [10, 10, 30, 1, 40] && queue.count == 0)
    }

    @Test func `A deadline's action may add and cancel others`() {
        let loop = EmbeddedEventLoop()
        let queue = DeadlineQueue(loop)
        let told = Told()
        let second = queue.add(after: .seconds(2)) { told.numbers.append(2) }
        _ = queue.add(after: .seconds(1)) {
            told.numbers.append(1)
            queue.remove(second)
            _ = queue.add(after: .seconds(3)) { told.numbers.append(4) }
        }
        loop.advanceTime(by: .seconds(10))
        #expect(told.numbers == [1, 4] && queue.count == 0)
    }

    @Test func `A million cancelled deadlines keep no memory`() {
        let loop = EmbeddedEventLoop()
        let queue = DeadlineQueue(loop)
        for _ in 0..<1_000_000 { queue.remove(queue.add(after: .hours(1)) {}) }
        #expect(queue.count == 0 && queue.entryCount <= 65)
    }
}
