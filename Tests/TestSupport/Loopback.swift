import Glibc
import Synchronization

/// Loopback addresses, one for each listener of a test. Linux picks free ports per address, and connections to the
/// loopback leave from 127.0.0.1. So a stopped listener finds its port free again.
package enum Loopback {
    private static let count = Mutex<UInt32>(0)

    /// From 127.236.0.2 to 127.251.255.254, above the addresses that the attackers of `Adversary` dial from. The
    /// process number keeps runs on one machine apart.
    package static func next() -> String {
        let count = count.withLock { count in
            count += 1
            return count
        }
        // Not the first or last address of a network.
        let number = UInt32(truncatingIfNeeded: getpid()) % 1_024 << 10 | (count % 1_020 + 2)
        return "127.\(236 + number >> 16).\(number >> 8 & 0xFF).\(number & 0xFF)"
    }
}
