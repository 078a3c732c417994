/// One file that we receive (Delivery.md, "Files"): we request its missing chunks, a window at a time.
///
/// The archive holds the chunks; this machine knows which.
package struct AttachmentReceiverStateMachine: Hashable, Sendable {
    private enum State: Hashable, Sendable {
        /// No session with the sender.
        case waiting
        case receiving(Flight)
        /// All chunks are here; the hash is being computed.
        case verifying
        case complete
        case failed
    }

    private struct Flight: Hashable, Sendable {
        var asked: Set<Int> = []
        /// All chunks before this one are here or requested.
        var next = 0
        /// When missing chunks are requested again.
        var deadline: Timestamp
    }

    package enum Action: Hashable, Sendable {
        case keep(Int)
        case request(first: Int, count: Int)
        case verify
        case progress
    }

    package let chunkCount: Int
    private var state = State.waiting
    private var present = RangeSet<Int>()
    private var wait = Limits.attachmentRetry.first
    private var meter = ProgressMeter()

    /// - Parameter has: whether the archive already has a chunk.
    package init(chunkCount: Int, has: (Int) -> Bool) {
        self.chunkCount = max(0, chunkCount)
        for index in 0..<self.chunkCount where has(index) { present.insert(contentsOf: index..<index + 1) }
    }

    package var count: Int { present.ranges.reduce(0) { $0 + $1.count } }

    package var isVerifying: Bool { state == .verifying }
    package var hasEnded: Bool { state == .complete || state == .failed }

    package var nextDeadline: Timestamp? { flight?.deadline }

    private var flight: Flight? { if case .receiving(let flight) = state { flight } else { nil } }

    /// - Parameter window: how many chunks may be requested at once.
    package mutating func linkUp(now: Timestamp, window: Int) -> [Action] {
        guard !isVerifying, !hasEnded else { return [] }
        wait = Limits.attachmentRetry.first
        return begin(now: now, window: window)
    }

    package mutating func linkLost() { if flight != nil { state = .waiting } }

    package func isAwaited(_ index: Int) -> Bool { flight?.asked.contains(index) ?? false }

    /// Takes a chunk of the right size. One that was not requested has no effect.
    package mutating func receive(_ index: Int, now: Timestamp, window: Int) -> [Action] {
        guard var flight, flight.asked.remove(index) != nil, !present.contains(index) else { return [] }
        present.insert(contentsOf: index..<index + 1)
        wait = Limits.attachmentRetry.first
        flight.deadline = now + wait
        var actions: [Action] = [.keep(index)]
        if meter.shows(count, of: chunkCount, now: now) { actions.append(.progress) }
        if count == chunkCount {
            state = .verifying
            return actions + [.verify]
        }
        if flight.asked.count <= window / 2 { actions += ask(&flight, window) }
        state = .receiving(flight)
        return actions
    }

    package mutating func advance(now: Timestamp, window: Int) -> [Action] {
        guard let flight, flight.deadline <= now else { return [] }
        wait = min(wait * 2, Limits.attachmentRetry.longest)
        return begin(now: now, window: window)
    }

    /// - Returns: whether the result of the hash was awaited.
    package mutating func verified(_ isRight: Bool) -> Bool {
        guard isVerifying else { return false }
        state = isRight ? .complete : .failed
        return true
    }

    /// - Returns: whether this ends the transfer.
    package mutating func gone() -> Bool {
        guard !isVerifying, !hasEnded else { return false }
        state = .failed
        return true
    }

    private mutating func begin(now: Timestamp, window: Int) -> [Action] {
        if count == chunkCount {
            state = .verifying
            return [.verify]
        }
        var flight = Flight(deadline: now + wait)
        let actions = ask(&flight, window)
        state = .receiving(flight)
        return actions
    }

    /// Requests runs of missing chunks until the window is full.
    private func ask(_ flight: inout Flight, _ window: Int) -> [Action] {
        let window = min(max(1, window), Limits.attachmentWindow)
        var actions: [Action] = []
        while flight.asked.count < window {
            while flight.next < chunkCount, present.contains(flight.next) { flight.next += 1 }
            let first = flight.next
            while flight.next < chunkCount, flight.asked.count < window, !present.contains(flight.next) {
                flight.asked.insert(flight.next)
                flight.next += 1
            }
            guard flight.next > first else { break }
            actions.append(.request(first: first, count: flight.next - first))
        }
        return actions
    }
}

/// Lets a progress event through after a second or after a twentieth of the file, whichever comes first.
package struct ProgressMeter: Hashable, Sendable {
    private var shown = 0
    private var at: Timestamp?

    package init() {}

    package mutating func shows(_ count: Int, of total: Int, now: Timestamp) -> Bool {
        guard let at else {
            // The first chunk is no progress, unless it completes the file.
            self.at = now
            shown = 0
            return count >= total
        }
        guard count >= total || count - shown >= max(1, total / 20) || now - at >= Limits.progressInterval else {
            return false
        }
        shown = count
        self.at = now
        return true
    }
}
