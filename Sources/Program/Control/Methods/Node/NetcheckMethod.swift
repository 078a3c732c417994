import Control

/// A rendezvous node's answer from one of its addresses.
struct NetcheckAnswer: JSONRecord, Hashable, Sendable {
    /// Name of the peer; absent when only a member uses this rendezvous node.
    var rendezvous: String?
    /// Address queried.
    var address = ""
    var port: Int = 0
    /// Our UDP source address as the rendezvous node saw it; absent without an answer.
    var seenAddress: String?
    var seenPort: Int?
    /// Round trip in milliseconds.
    var rttMs: Double?
    /// Time to connect over TCP, in milliseconds; absent without a connection.
    var tcpMs: Double?

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("rendezvous", &rendezvous)
        try fields.field("address", &address)
        try fields.field("port", &port)
        try fields.field("seenAddress", &seenAddress)
        try fields.field("seenPort", &seenPort)
        try fields.field("rttMs", &rttMs)
        try fields.field("tcpMs", &tcpMs)
    }
}

struct NetcheckFamily: JSONRecord, Hashable, Sendable {
    /// `ipv4` or `ipv6`.
    var family = ""
    /// Whether a route to other networks exists.
    var route = false
    /// Our local address on that route.
    var local: String?
    /// Whether UDP answers arrive, and whether TCP connects; null when there was no node to query.
    var udp: Bool?
    var tcp: Bool?
    /// `none`, `endpoint-independent`, `symmetric` or `unknown`.
    var nat = ""
    /// NAT mapping behaviour (RFC 4787): `endpoint-independent`, `address-dependent`, `address-and-port-dependent`,
    /// `destination-dependent` (one of the two before) or `unknown`.
    var mapping = ""
    /// Whether the outer port equals the local one; null when unknown.
    var portPreserved: Bool?
    var answers: [NetcheckAnswer] = []

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
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

enum NetcheckMethod: ControlMethod {
    static let name = "netcheck"
    static let summary = "Checks the NAT of this network, and which paths work."

    static func waits(_ params: Params) -> Bool { true }

    struct Params: JSONRecord, Hashable, Sendable {
        /// Answers with partial results after this time; greater than 0. Absent means 10 s, or 30 s with `mapPorts`.
        var timeout: Interval?
        /// Ask gateways for a test mapping and remove it at once, if port mapping is off. Absent means false.
        var mapPorts: Bool?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("timeout", &timeout)
            try fields.field("mapPorts", &mapPorts)
        }
    }

    struct Result: JSONRecord, Hashable, Sendable {
        var families: [NetcheckFamily] = []
        /// Whether this node uses UDP links.
        var datagrams = false
        /// Absent when gateways were not queried.
        var portMappings: [PortMappingStatus]?
        /// Networks searched for members, or `off`.
        var discovery = ""
        /// UDP hole punching: `unneeded`, `works`, `limited`, `impossible` or `unknown`.
        var punching = ""
        /// Whether a rendezvous node answered; null when none is known.
        var reached: Bool?
        /// Sentences for people.
        var advice: [String] = []

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
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
