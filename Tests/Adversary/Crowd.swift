import Glibc
import Synchronization

final class MutexTable: Sendable {
    private let values = Mutex<[String: SharedTokens]>([:])

    func value(_ name: String, _ make: () -> SharedTokens) -> SharedTokens {
        values.withLock { values in
            if let known = values[name] { return known }
            let made = make()
            values[name] = made
            return made
        }
    }
}

/// Many simultaneous connections that send nothing, or almost nothing.
final class Crowd {
    /// POLLRDHUP.
    private static let hangUp: Int16 = 0x2000
    private let target: Target
    private let effort: Effort
    private var open: [RawConnection] = []
    private var number = 0
    private var tally = Tally()

    init(_ target: Target, _ effort: Effort) {
        self.target = target
        self.effort = effort
    }

    private func refill(_ most: Int) {
        for _ in 0..<min(most, effort.crowd - open.count) {
            number += 1
            guard let connection = try? RawConnection(from: Source(number), to: target.address, isWaiting: false) else {
                continue
            }
            tally.count += 1
            open.append(connection)
        }
    }

    /// Drops connections that the node has closed. It closes the oldest first, and polling ten thousand would cost more
    /// than the node's own work.
    private func sweep() {
        let oldest = open.prefix(1_024)
        var polled = oldest.map { pollfd(fd: $0.descriptor, events: Int16(POLLIN) | Self.hangUp, revents: 0) }
        guard poll(&polled, nfds_t(polled.count), 0) > 0 else { return }
        var kept: [RawConnection] = []
        for (index, connection) in oldest.enumerated() {
            let hasNews = polled[index].revents & (Int16(POLLIN | POLLHUP | POLLERR) | Self.hangUp) != 0
            if hasNews, connection.hasEnded { tally.refused += 1 } else { kept.append(connection) }
        }
        open.replaceSubrange(..<oldest.count, with: kept)
    }

    /// Holds silent connections and reopens those that the node closes.
    /// - Parameter inBursts: Opens all at once, so that they end at once, too; otherwise as evenly as possible.
    func hold(inBursts: Bool) -> Tally {
        // Refilled 50 times a second; each stays open for 5 s.
        let most = inBursts ? 500 : effort.crowd / 200
        while effort.goesOn || tally.count == 0 {
            refill(most)
            sweep()
            tally.held = max(tally.held, open.count)
            usleep(20_000)
        }
        return tally
    }

    /// Sends a byte per second on each connection.
    func trickle() -> Tally {
        var last = ContinuousClock.now
        while effort.goesOn || tally.count == 0 {
            refill(500)
            sweep()
            tally.held = max(tally.held, open.count)
            if .now - last > .seconds(1) {
                last = .now
                for connection in open { connection.write([0x4D]) }
            }
            usleep(20_000)
        }
        return tally
    }
}
