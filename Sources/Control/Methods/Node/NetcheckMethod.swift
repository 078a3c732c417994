/// A rendezvous node's answer from one of its addresses.
package struct NetcheckAnswer: JSONRecord, Hashable, Sendable {
    /// Name of the peer; absent when only a member uses this rendezvous node.
    package var rendezvous: String?
    /// Address queried.
    package var address = ""
    package var port: Int = 0
    /// Our UDP source address as the rendezvous node saw it; absent without an answer.
    package var seenAddress: String?
    package var seenPort: Int?
    /// Round trip in milliseconds.
    package var rttMs: Double?
    /// Time to connect over TCP, in milliseconds; absent without a connection.
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

package struct NetcheckFamily: JSONRecord, Hashable, Sendable {
    /// `ipv4` or `ipv6`.
    package var family = ""
    /// Whether a route to other networks exists.
    package var route = false
    /// Our local address on that route.
    package var local: String?
    /// Whether UDP answers arrive, and whether TCP connects; null when there was no node to query.
    package var udp: Bool?
    package var tcp: Bool?
    /// `none`, `endpoint-independent`, `symmetric` or `unknown`.
    package var nat = ""
    /// NAT mapping behaviour (RFC 4787): `endpoint-independent`, `address-dependent`, `address-and-port-dependent`,
    /// `destination-dependent` (one of the two before) or `unknown`.
    package var mapping = ""
    /// Whether the outer port equals the local one; null when unknown.
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

package enum NetcheckMethod: ControlMethod {
    package static let name = "netcheck"
    package static let summary = "Asks the rendezvous nodes from where they see this node, and tells what that means."

    package static func waits(_ params: Params) -> Bool { true }

    package struct Params: JSONRecord, Hashable, Sendable {
        /// Answers with partial results after this time; greater than 0. Absent means 10 s, or 30 s with `mapPorts`.
        package var timeout: Interval?
        /// Ask gateways for a test mapping and remove it at once, if port mapping is off. Absent means false.
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

    package struct Result: JSONRecord, Hashable, Sendable {
        package var families: [NetcheckFamily] = []
        /// Whether this node uses UDP links.
        package var datagrams = false
        /// Absent when gateways were not queried.
        package var portMappings: [PortMappingStatus]?
        /// Networks searched for members, or `off`.
        package var discovery = ""
        /// UDP hole punching: `unneeded`, `works`, `limited`, `impossible` or `unknown`.
        package var punching = ""
        /// Whether a rendezvous node answered; null when none is known.
        package var reached: Bool?
        /// Sentences for people.
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
