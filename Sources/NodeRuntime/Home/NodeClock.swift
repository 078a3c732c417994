import Glibc
import Messaging

/// The node's wall clock (Store.md, "clock"). It never goes back, even if the system clock does.
///
/// It advances at least as fast as `CLOCK_BOOTTIME`. A forward step of more than five minutes hides overdue content at
/// once. The node accepts the step only after it has lasted a minute, so that a time server's glitch destroys nothing.
package struct NodeClock: Sendable {
    private static let step: Milliseconds = 5 * .minute
    private static let confirmation: Milliseconds = .minute

    /// Two times of one moment; they differ while a forward step is unconfirmed.
    package struct Reading: Hashable, Sendable {
        /// Content that expires before this time is hidden.
        package var hide: Timestamp
        /// Content that expires before this time is destroyed. Also the time of all the node's work.
        package var confirmed: Timestamp

        package var isInDoubt: Bool { hide > confirmed }
    }

    private var anchor: Milliseconds
    private var anchorBoot: Milliseconds
    /// When the system clock was first seen far ahead, by `CLOCK_BOOTTIME`.
    private var aheadSince: Milliseconds?

    /// - Parameter mark: the latest time ever confirmed on this home; the clock starts no earlier.
    package init(mark: Milliseconds, realtime: Milliseconds, boottime: Milliseconds) {
        anchor = max(mark, realtime)
        anchorBoot = boottime
    }

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

    package static func realtime() -> Milliseconds { milliseconds(CLOCK_REALTIME) }
    /// Includes the time that the machine is suspended.
    package static func boottime() -> Milliseconds { milliseconds(CLOCK_BOOTTIME) }

    private static func milliseconds(_ clock: clockid_t) -> Milliseconds {
        var time = timespec()
        clock_gettime(clock, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }
}
