import Messaging
import Transport

/// How a node is started.
package struct NodeOptions: Sendable {
    package var home: String
    package var version: String
    /// Overrides the configuration's addresses.
    package var listen: [Messaging.Endpoint]?
    /// How long a lost link counts as the same session, in milliseconds.
    package var sessionGrace: Milliseconds = Limits.sessionGrace
    /// How many inboxes are to be awake; overrides the configuration's number.
    package var capacity: Int?
    /// Whether this is a rendezvous node; overrides the configuration's word.
    package var isRendezvous: Bool?
    /// Whether this is a mailbox; overrides the configuration's word.
    package var isMailbox: Bool?
    /// Whether links run over UDP, too; overrides the configuration's word.
    package var datagrams: Bool?
    /// Overrides the configuration's.
    package var discover: DiscoverySetting?
    /// Whether the level of the log was given, too; overrides the configuration's.
    package var hasLogLevel = false
    /// Whether it was said where the figures are served; overrides the configuration's.
    package var hasMetrics = false
    /// Whether gateways are asked for port mappings; overrides the configuration's word.
    package var mapPorts: Bool?
    /// UDP port of the LAN's group.
    package var lanPort = LanLimits.port

    package init(home: String, version: String) {
        self.home = home
        self.version = version
    }
}
