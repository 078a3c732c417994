import Control
import Messaging

enum EndpointOption {
    static func endpoints(_ texts: [String], option: String) throws(ControlError) -> [Endpoint] {
        var result: [Endpoint] = []
        for text in texts {
            guard let endpoint = Endpoint(text) else {
                throw ControlError(
                    .usage, "\(option): `\(text)` is not an endpoint", hint: "write tcp://HOST:PORT, IPv6 in brackets")
            }
            result.append(endpoint)
        }
        return result
    }

    static let defaultPort: UInt16 = 7440

    /// Parses HOST, HOST:PORT, [IPV6]:PORT, an IPv6 address or a whole endpoint.
    static func place(_ text: String, option: String) throws(ControlError) -> Endpoint {
        let isAddress = text.filter { $0 == ":" }.count > 1 && !text.hasPrefix("[") && !text.contains("/")
        let hasPort = isAddress ? false : text.hasPrefix("[") ? !text.hasSuffix("]") : text.contains(":")
        let whole = isAddress ? "tcp://[\(text)]" : text.contains("://") ? text : "tcp://\(text)"
        guard let endpoint = Endpoint(hasPort ? whole : "\(whole):\(defaultPort)"), endpoint.relay == nil,
            endpoint.port > 0
        else {
            throw ControlError(
                .usage, "\(option): `\(text)` is not a host",
                hint: "write HOST or HOST:PORT, an address of IPv6 with a port in brackets")
        }
        return endpoint
    }

    /// The inverse of ``place(_:option:)``.
    static func place(of endpoint: Endpoint) -> String {
        guard endpoint.port != defaultPort else { return endpoint.host }
        return endpoint.host.contains(":") ? "[\(endpoint.host)]:\(endpoint.port)" : "\(endpoint.host):\(endpoint.port)"
    }
}
