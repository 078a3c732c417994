import Control

/// A rendezvous node's answer from one of its addresses.
struct NetcheckAnswer: CodableRecord {
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
}

struct NetcheckFamily: CodableRecord {
    /// `ipv4` or `ipv6`.
    var family = ""
    /// Whether a route to other networks exists.
    var route = false
    /// Our local address on that route.
    var local: String?
    /// Whether UDP answers arrive, and whether TCP connects; null when there was no node to query.
    @OrNull var udp: Bool?
    @OrNull var tcp: Bool?
    /// `none`, `endpoint-independent`, `symmetric` or `unknown`.
    var nat = ""
    /// NAT mapping behaviour (RFC 4787): `endpoint-independent`, `address-dependent`, `address-and-port-dependent`,
    /// `destination-dependent` (one of the two before) or `unknown`.
    var mapping = ""
    /// Whether the outer port equals the local one; null when unknown.
    @OrNull var portPreserved: Bool?
    var answers: [NetcheckAnswer] = []
}

struct NetcheckParams: CodableRecord {
    /// Answers with partial results after this time; greater than 0. Absent means 10 s, or 30 s with `mapPorts`.
    var timeout: Interval?
    /// Ask gateways for a test mapping and remove it at once, if port mapping is off. Absent means false.
    var mapPorts: Bool?
}

struct NetcheckResult: CodableRecord {
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
    @OrNull var reached: Bool?
    /// Sentences for people.
    var advice: [String] = []
}
