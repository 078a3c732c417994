import Messaging
import Store
import Transport

/// The disk, clocks and network under a node: the operating system's, or a simulator's.
package struct Environment: Sendable {
    package var disk: any FileSystem = PosixFileSystem()
    package var commitThread = CommitThread.own
    package var network: any Network = Sockets()
    /// `nil` for TCP alone.
    package var datagrams: (any DatagramNetwork)? = Sockets()
    package var lan: (any LanNetwork)? = Sockets()
    package var gateways: (any GatewayNetwork)? = SystemGateways()
    /// `CLOCK_REALTIME` in milliseconds.
    package var realtime: @Sendable () -> Milliseconds = { NodeClock.realtime() }
    /// `CLOCK_BOOTTIME` in milliseconds.
    package var boottime: @Sendable () -> Milliseconds = { NodeClock.boottime() }
    /// Free space of the disk that holds a home.
    package var space: @Sendable (_ home: String) -> DiskSpace? = { DiskSpace(of: $0) }

    package init() {}
}
