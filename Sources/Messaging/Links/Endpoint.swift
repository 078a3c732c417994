/// A network address of a node: `tcp://192.0.2.1:7440`, `tcp://[2001:db8::1]:7440` or `tcp://host:7440`. Or its place
/// at a rendezvous node: `relay://host:7440/…` with a ``RelayAddress``.
package struct Endpoint: Hashable, Sendable, TextCodable, CustomStringConvertible {
    /// A name or an address, IPv6 without brackets.
    package let host: String
    package let port: UInt16
    /// `nil` for a direct endpoint; otherwise host and port are the rendezvous node's.
    package let relay: RelayAddress?

    package init(host: String, port: UInt16, relay: RelayAddress? = nil) {
        (self.host, self.port, self.relay) = (host, port, relay)
    }

    /// Where to connect: for a relayed endpoint, the rendezvous node.
    package var address: Endpoint { Endpoint(host: host, port: port) }

    /// `nil` unless `text` is an endpoint as above. Port 0 is allowed: it asks for a free one.
    package init?(_ text: some StringProtocol) {
        guard text.utf8.count <= Limits.endpointByteCount else { return nil }
        if text.hasPrefix(Self.relayed) {
            let rest = text.dropFirst(Self.relayed.count)
            guard let slash = rest.firstIndex(of: "/"), let relay = RelayAddress(rest[rest.index(after: slash)...]),
                let address = Endpoint(address: rest[..<slash]), address.port > 0
            else { return nil }
            self.init(host: address.host, port: address.port, relay: relay)
        } else {
            guard text.hasPrefix(Self.direct) else { return nil }
            self.init(address: text.dropFirst(Self.direct.count))
        }
    }

    private static let direct = "tcp://"
    private static let relayed = "relay://"

    /// Whether `text` may be an endpoint of a later version, which readers skip.
    package static func isOfUnknownKind(_ text: some StringProtocol) -> Bool {
        guard let colon = text.firstIndex(of: ":"), text[colon...].hasPrefix("://") else { return false }
        let scheme = text[...text.index(colon, offsetBy: 2)]
        return scheme != direct && scheme != relayed && colon != text.startIndex
    }

    private init?(address rest: some StringProtocol) {
        guard let colon = rest.lastIndex(of: ":"), let port = UInt16(rest[rest.index(after: colon)...]),
            String(port) == rest[rest.index(after: colon)...]
        else { return nil }
        var host = String(rest[..<colon])
        if host.hasPrefix("[") {
            guard host.hasSuffix("]") else { return nil }
            host = String(host.dropFirst().dropLast())
            guard host.contains(":") else { return nil }
        } else if host.contains(":") {
            return nil
        }
        guard !host.isEmpty, host.isAlphanumeric(or: ".-:%_") else { return nil }
        self.init(host: host, port: port)
    }

    package var description: String {
        let address = host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        return relay.map { "\(Self.relayed)\(address)/\($0.text)" } ?? Self.direct + address
    }

    package static var expectation: String { "tcp://HOST:PORT" }
    package var coded: String { description }
    package init?(coded text: String) { self.init(text) }
}
