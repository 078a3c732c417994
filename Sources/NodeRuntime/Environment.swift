import Messaging
import Store
import Transport

/// What a node stands on: its disk, its clocks and its network. The operating system's, unless a simulator has others.
package struct Environment: Sendable {
    package var disk: any FileSystem = PosixFileSystem()
    package var commitThread = CommitThread.own
    package var network: any Network = Sockets()
    /// `nil` for TCP alone.
    package var datagrams: (any DatagramNetwork)? = Sockets()
    /// `nil` where nobody can be near.
    package var lan: (any LanNetwork)? = Sockets()
    /// `nil` where there is none that could be asked for port mappings.
    package var gateways: (any GatewayNetwork)? = SystemGateways()
    /// `CLOCK_REALTIME` in milliseconds.
    package var realtime: @Sendable () -> Milliseconds = { NodeClock.realtime() }
    /// `CLOCK_BOOTTIME` in milliseconds.
    package var boottime: @Sendable () -> Milliseconds = { NodeClock.boottime() }
    /// The room on the disk that has a home.
    package var space: @Sendable (_ home: String) -> DiskSpace? = { DiskSpace(of: $0) }

    package init() {}
}
