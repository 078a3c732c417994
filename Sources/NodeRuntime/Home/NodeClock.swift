import Glibc
import Messaging

/// The node's wall clock (Store.md, "clock"): never goes back, whatever is done to the system's.
///
/// Between two readings as much time passes as `CLOCK_BOOTTIME` says, at least. A step forward of more than five minutes
/// hides what it makes overdue at once, and counts only when it has lasted for a minute, so that a glitch of a time
/// server destroys nothing.
package struct NodeClock: Sendable {
    private static let step: Milliseconds = 5 * .minute
    private static let confirmation: Milliseconds = .minute

    /// The two times of a moment; they differ while a step forward is in doubt.
    package struct Reading: Hashable, Sendable {
        /// What expires before this is not shown.
        package var hide: Timestamp
        /// What expires before this is destroyed; also the time of everything that the node does.
        package var confirmed: Timestamp

        /// Whether a step forward is in doubt.
        package var isInDoubt: Bool { hide > confirmed }
    }

    private var anchor: Milliseconds
    private var anchorBoot: Milliseconds
    /// When the system's clock was first seen far ahead, by `CLOCK_BOOTTIME`.
    private var aheadSince: Milliseconds?

    /// - Parameter mark: the latest time ever confirmed on this home; the clock does not start before it.
    package init(mark: Milliseconds, realtime: Milliseconds, boottime: Milliseconds) {
        anchor = max(mark, realtime)
        anchorBoot = boottime
    }

    /// - Parameters:
    ///   - realtime: `CLOCK_REALTIME` in milliseconds.
    ///   - boottime: `CLOCK_BOOTTIME` in milliseconds.
    package mutating func read(realtime: Milliseconds, boottime: Milliseconds) -> Reading {
        let expected = anchor + max(0, boottime - anchorBoot)
        guard realtime > expected else {
            aheadSince = nil
            return Reading(hide: Timestamp(milliseconds: expected), confirmed: Timestamp(milliseconds: expected))
        }
        if realtime - expected > Self.step {
            let since = aheadSince ?? boottime
            aheadSince = since
            guard boottime - since >= Self.confirmation else {
                return Reading(hide: Timestamp(milliseconds: realtime), confirmed: Timestamp(milliseconds: expected))
            }
        }
        aheadSince = nil
        anchor = realtime
        anchorBoot = boottime
        return Reading(hide: Timestamp(milliseconds: realtime), confirmed: Timestamp(milliseconds: realtime))
    }

    /// `CLOCK_REALTIME` in milliseconds.
    package static func realtime() -> Milliseconds { milliseconds(CLOCK_REALTIME) }
    /// `CLOCK_BOOTTIME` in milliseconds: goes on while the machine sleeps.
    package static func boottime() -> Milliseconds { milliseconds(CLOCK_BOOTTIME) }

    private static func milliseconds(_ clock: clockid_t) -> Milliseconds {
        var time = timespec()
        clock_gettime(clock, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }
}
