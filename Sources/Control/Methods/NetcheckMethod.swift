/// What a rendezvous node has answered at one of its addresses.
package struct NetcheckAnswer: Codable, Hashable, Sendable {
    /// Its name here; absent for one that a member uses.
    package var rendezvous: String?
    /// Where it was asked.
    package var address: String
    package var port: Int
    /// From where it has seen this node over UDP; absent when it has not answered.
    package var seenAddress: String?
    package var seenPort: Int?
    /// From the question to the answer.
    package var rttMs: Double?
    /// How long a connection over TCP took; absent when there was none.
    package var tcpMs: Double?

    package init(
        rendezvous: String?,
        address: String,
        port: Int,
        seenAddress: String?,
        seenPort: Int?,
        rttMs: Double?,
        tcpMs: Double?
    ) {
        self.rendezvous = rendezvous
        self.address = address
        self.port = port
        self.seenAddress = seenAddress
        self.seenPort = seenPort
        self.rttMs = rttMs
        self.tcpMs = tcpMs
    }
}

/// One address family, as `netcheck` found it.
package struct NetcheckFamily: Codable, Hashable, Sendable {
    /// `ipv4` or `ipv6`.
    package var family: String
    /// Whether there is a way to elsewhere.
    package var route: Bool
    /// Our address toward others.
    package var local: String?
    /// Whether UDP comes back, and whether TCP connects; null when nobody could be asked.
    @Nullable package var udp: Bool?
    @Nullable package var tcp: Bool?
    /// `none`, `endpoint-independent`, `symmetric` or `unknown`.
    package var nat: String
    /// What the outer port depends on (RFC 4787): `endpoint-independent`, `address-dependent`, `address-and-port-dependent`,
    /// `destination-dependent` (one of the two before) or `unknown`.
    package var mapping: String
    /// Whether the outer port is the node's own; null when that is not known.
    @Nullable package var portPreserved: Bool?
    package var answers: [NetcheckAnswer]

    package init(
        family: String,
        route: Bool,
        local: String?,
        udp: Bool?,
        tcp: Bool?,
        nat: String,
        mapping: String,
        portPreserved: Bool?,
        answers: [NetcheckAnswer]
    ) {
        self.family = family
        self.route = route
        self.local = local
        self.udp = udp
        self.tcp = tcp
        self.nat = nat
        self.mapping = mapping
        self.portPreserved = portPreserved
        self.answers = answers
    }
}

/// `netcheck`: tells what this network lets through.
package enum NetcheckMethod: ControlMethod {
    package static let name = "netcheck"
    package static let summary = "Asks the rendezvous nodes from where they see this node, and tells what that means."

    /// What `netcheck` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// After which it tells what it knows by then; more than nothing. If absent 10 s, or 30 s with `mapPorts`.
        package var timeout: Interval?
        /// Ask gateways for a mapping, which is removed at once, where they are not asked anyway; no if absent.
        package var mapPorts: Bool?

        package init(timeout: Interval? = nil, mapPorts: Bool? = nil) {
            self.timeout = timeout
            self.mapPorts = mapPorts
        }
    }

    /// What `netcheck` answers.
    package struct Result: Codable, Hashable, Sendable {
        package var families: [NetcheckFamily]
        /// Whether this node has links over UDP at all.
        package var datagrams: Bool
        /// Absent when gateways were not asked.
        package var portMappings: [PortMappingStatus]?
        /// Networks on which members are looked for; `off` when that is off.
        package var discovery: String
        /// Whether ways through NATs can be made: `unneeded`, `works`, `limited`, `impossible` or `unknown`.
        package var punching: String
        /// Whether a rendezvous node was reached; null when none is known.
        @Nullable package var reached: Bool?
        /// What it means, in sentences.
        package var advice: [String]

        package init(
            families: [NetcheckFamily],
            datagrams: Bool,
            portMappings: [PortMappingStatus]?,
            discovery: String,
            punching: String,
            reached: Bool?,
            advice: [String]
        ) {
            self.families = families
            self.datagrams = datagrams
            self.portMappings = portMappings
            self.discovery = discovery
            self.punching = punching
            self.reached = reached
            self.advice = advice
        }
    }
}
