/// Numbers of port mapping: what a lease may be, and when it is looked after. Times are milliseconds.
package enum MappingLimits {
    /// The longest lease that is asked for or believed, in seconds.
    package static let lease: UInt32 = 3_600
    /// The shortest that is worth having, in seconds.
    package static let leaseLeast: UInt32 = 60
    /// How often the gateway is asked whether it still is the one that it was.
    package static let lookInterval: Int64 = 60_000
    /// The shortest pause before a renewal is tried again.
    package static let retryLeast: Int64 = 10_000
    /// The pause after all methods have failed: the first, and the longest, of doubling ones.
    package static let pause: Int64 = 60_000
    package static let pauseMost: Int64 = 900_000
    /// Addresses of ours for which pinholes are asked of an IPv6 gateway.
    package static let addressCount = 4
    /// How long a clean stop waits for mappings to be removed.
    package static let stopPatience: Int64 = 2_000
}

/// How a gateway is asked, in the order in which it is tried.
package enum MappingMethod: String, Sendable, CaseIterable {
    /// RFC 6887.
    case pcp
    /// RFC 6886.
    case natPMP = "nat-pmp"
    /// Internet Gateway Device, by the UPnP Forum.
    case upnp
}

/// What is to be reached from outside, and by which gateway.
package struct MappingPlace: Hashable, Sendable {
    /// The default gateway of the family.
    package let gateway: LanAddress
    /// The interface behind which it is.
    package let interface: UInt32
    /// Our address on that interface.
    package let local: LanAddress
    /// Where we listen, TCP and, if it is on, UDP. Not 0.
    package let port: UInt16
    package let hasDatagrams: Bool

    package init(gateway: LanAddress, interface: UInt32, local: LanAddress, port: UInt16, hasDatagrams: Bool) {
        self.gateway = gateway
        self.interface = interface
        self.local = local
        self.port = port
        self.hasDatagrams = hasDatagrams
    }

    /// What can be tried: NAT-PMP, and UPnP as it is used here, know IPv4 only.
    package var methods: [MappingMethod] { local.isIPv4 ? MappingMethod.allCases : [.pcp] }

    package var carriers: [MappingCarrier] { hasDatagrams ? [.tcp, .udp] : [.tcp] }
}

/// Its raw value is the protocol's number (IANA).
package enum MappingCarrier: UInt8, Sendable, CaseIterable {
    case tcp = 6
    case udp = 17
}

/// What a gateway has said that it does, not yet believed.
package struct MappingGrant: Hashable, Sendable {
    package var outer: LanAddress
    package var tcp: UInt16
    /// `nil` if UDP was not asked for.
    package var udp: UInt16?
    /// In seconds: the shorter of the two.
    package var lifetime: UInt32
    /// The gateway's time since it started, in seconds; `nil` where the method has none.
    package var epoch: UInt32?

    package init(outer: LanAddress, tcp: UInt16, udp: UInt16?, lifetime: UInt32, epoch: UInt32?) {
        self.outer = outer
        self.tcp = tcp
        self.udp = udp
        self.lifetime = lifetime
        self.epoch = epoch
    }
}

/// A mapping that there is, as far as the gateway can be believed.
package struct Mapping: Hashable, Sendable {
    package let method: MappingMethod
    package let place: MappingPlace
    package var outer: LanAddress
    package var tcp: UInt16
    package var udp: UInt16?
    package var grantedAt: Int64
    package var expiresAt: Int64
    package var epoch: UInt32?

    package init(_ grant: MappingGrant, _ method: MappingMethod, _ place: MappingPlace, now: Int64) {
        self.method = method
        self.place = place
        outer = grant.outer
        tcp = grant.tcp
        udp = grant.udp
        grantedAt = now
        expiresAt = now + Int64(min(grant.lifetime, MappingLimits.lease)) * 1_000
        epoch = grant.epoch
    }

    /// Where it leads in from outside: one port, if both carriers have the same.
    package var ports: [UInt16] { udp == nil || udp == tcp ? [tcp] : [tcp, udp ?? tcp] }

    package func port(of carrier: MappingCarrier) -> UInt16 {
        switch carrier {
        case .tcp: tcp
        case .udp: udp ?? tcp
        }
    }
}

/// Why there is no mapping; in the order in which it says more than another.
package enum MappingFailure: Hashable, Sendable {
    /// There is nothing that speaks this at the gateway.
    case unsupported
    /// No answer.
    case silent
    /// The gateway's answer makes no sense.
    case malformed
    /// It makes mappings without an end only, and those are not asked for.
    case permanentOnly
    /// The gateway has refused: the method's own code (RFC 6887, 7.4; RFC 6886, 3.5; UPnP's error codes).
    case refused(Int)
    /// The gateway is itself behind a NAT: its outer address.
    case notGlobal(LanAddress)

    private var rank: Int {
        switch self {
        case .unsupported: 0
        case .silent: 1
        case .malformed: 2
        case .permanentOnly: 3
        case .refused: 4
        case .notGlobal: 5
        }
    }

    /// Of several methods' failures the one that says most.
    package static func telling(_ failures: [MappingFailure]) -> MappingFailure {
        failures.max { $0.rank < $1.rank } ?? .silent
    }
}
