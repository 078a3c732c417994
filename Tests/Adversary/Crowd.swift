import Glibc

/// Many simultaneous connections that send nothing, or almost nothing.
struct Crowds: Attackers {
    let target: Target
    let effort: Effort

    /// Opened as evenly as possible: refilled 50 times a second, each stays open for 5 s.
    func hold() -> Tally { held(effort.crowd, refill: effort.crowd / 200) }

    /// Opens all at once, so that they end at once, too.
    func holdInBursts() -> Tally { held(effort.crowd, refill: 500) }

    /// Sends a byte per second on each connection.
    func trickle() -> Tally { held(min(effort.crowd, 2_000), refill: 500, everySecond: [0x4D]) }

    /// Holds connections and reopens those that the node closes.
    private func held(_ size: Int, refill most: Int, everySecond bytes: [UInt8] = []) -> Tally {
        inParallel(1) { _, tally in
            let crowd = Crowd(target, size)
            var last = ContinuousClock.now
            while effort.goesOn || tally.count == 0 {
                crowd.refill(most, &tally)
                crowd.sweep(&tally)
                tally.held = max(tally.held, crowd.open.count)
                if .now - last > .seconds(1) {
                    last = .now
                    for connection in crowd.open { connection.write(bytes) }
                }
                usleep(20_000)
            }
        }
    }
}

private final class Crowd {
    /// POLLRDHUP.
    private static let hangUp: Int16 = 0x2000
    private let target: Target
    private let size: Int
    private(set) var open: [RawConnection] = []
    private var number = 0

    init(_ target: Target, _ size: Int) { (self.target, self.size) = (target, size) }

    func refill(_ most: Int, _ tally: inout Tally) {
        for _ in 0..<min(most, size - open.count) {
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
    func sweep(_ tally: inout Tally) {
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
}
