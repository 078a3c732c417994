import Messaging
import Store
import Transport

/// How a node is started. A setting that is not `nil` overrides the configuration.
package struct NodeOptions: Sendable {
    package var home: String
    package var version: String
    package var listen: [Messaging.Endpoint]?
    /// A link that returns within this time continues its session.
    package var sessionGrace: Milliseconds = Limits.sessionGrace
    package var capacity: Int?
    package var isRendezvous: Bool?
    package var isMailbox: Bool?
    package var datagrams: Bool?
    package var discover: DiscoverySetting?
    /// The command line gave the log level; a reload of the configuration leaves it.
    package var hasLogLevel = false
    /// The command line gave the address of the metrics; a reload of the configuration leaves it.
    package var hasMetrics = false
    package var mapPorts: Bool?
    /// UDP port of the LAN multicast group.
    package var lanPort = LanLimits.port

    package init(home: String, version: String) {
        self.home = home
        self.version = version
    }
}

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
