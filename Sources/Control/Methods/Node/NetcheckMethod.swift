/// What a rendezvous node has answered at one of its addresses.
package struct NetcheckAnswer: JSONRecord, Hashable, Sendable {
    /// Its name here; absent for one that a member uses.
    package var rendezvous: String?
    /// Where it was asked.
    package var address = ""
    package var port: Int = 0
    /// From where it has seen this node over UDP; absent when it has not answered.
    package var seenAddress: String?
    package var seenPort: Int?
    /// From the question to the answer.
    package var rttMs: Double?
    /// How long a connection over TCP took; absent when there was none.
    package var tcpMs: Double?

    package init(
        rendezvous: String?, address: String, port: Int, seenAddress: String?, seenPort: Int?, rttMs: Double?,
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

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("rendezvous", &rendezvous)
        try fields.field("address", &address)
        try fields.field("port", &port)
        try fields.field("seenAddress", &seenAddress)
        try fields.field("seenPort", &seenPort)
        try fields.field("rttMs", &rttMs)
        try fields.field("tcpMs", &tcpMs)
    }
}

/// One address family, as `netcheck` found it.
package struct NetcheckFamily: JSONRecord, Hashable, Sendable {
    /// `ipv4` or `ipv6`.
    package var family = ""
    /// Whether there is a way to elsewhere.
    package var route = false
    /// Our address toward others.
    package var local: String?
    /// Whether UDP comes back, and whether TCP connects; null when nobody could be asked.
    package var udp: Bool?
    package var tcp: Bool?
    /// `none`, `endpoint-independent`, `symmetric` or `unknown`.
    package var nat = ""
    /// What the outer port depends on (RFC 4787): `endpoint-independent`, `address-dependent`, `address-and-port-dependent`,
    /// `destination-dependent` (one of the two before) or `unknown`.
    package var mapping = ""
    /// Whether the outer port is the node's own; null when that is not known.
    package var portPreserved: Bool?
    package var answers: [NetcheckAnswer] = []

    package init(
        family: String, route: Bool, local: String?, udp: Bool?, tcp: Bool?, nat: String, mapping: String,
        portPreserved: Bool?, answers: [NetcheckAnswer]
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

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("family", &family)
        try fields.field("route", &route)
        try fields.field("local", &local)
        try fields.nullable("udp", &udp)
        try fields.nullable("tcp", &tcp)
        try fields.field("nat", &nat)
        try fields.field("mapping", &mapping)
        try fields.nullable("portPreserved", &portPreserved)
        try fields.field("answers", &answers)
    }
}

/// `netcheck`: tells what this network lets through.
package enum NetcheckMethod: ControlMethod {
    package static let name = "netcheck"
    package static let summary = "Asks the rendezvous nodes from where they see this node, and tells what that means."

    package static func waits(_ params: Params) -> Bool { true }

    /// What `netcheck` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// After which it tells what it knows by then; more than nothing. If absent 10 s, or 30 s with `mapPorts`.
        package var timeout: Interval?
        /// Ask gateways for a mapping, which is removed at once, where they are not asked anyway; no if absent.
        package var mapPorts: Bool?

        package init(timeout: Interval? = nil, mapPorts: Bool? = nil) {
            self.timeout = timeout
            self.mapPorts = mapPorts
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("timeout", &timeout)
            try fields.field("mapPorts", &mapPorts)
        }
    }

    /// What `netcheck` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        package var families: [NetcheckFamily] = []
        /// Whether this node has links over UDP at all.
        package var datagrams = false
        /// Absent when gateways were not asked.
        package var portMappings: [PortMappingStatus]?
        /// Networks on which members are looked for; `off` when that is off.
        package var discovery = ""
        /// Whether ways through NATs can be made: `unneeded`, `works`, `limited`, `impossible` or `unknown`.
        package var punching = ""
        /// Whether a rendezvous node was reached; null when none is known.
        package var reached: Bool?
        /// What it means, in sentences.
        package var advice: [String] = []

        package init(
            families: [NetcheckFamily], datagrams: Bool, portMappings: [PortMappingStatus]?, discovery: String,
            punching: String, reached: Bool?, advice: [String]
        ) {
            self.families = families
            self.datagrams = datagrams
            self.portMappings = portMappings
            self.discovery = discovery
            self.punching = punching
            self.reached = reached
            self.advice = advice
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("families", &families)
            try fields.field("datagrams", &datagrams)
            try fields.field("portMappings", &portMappings)
            try fields.field("discovery", &discovery)
            try fields.field("punching", &punching)
            try fields.nullable("reached", &reached)
            try fields.field("advice", &advice)
        }
    }
}
