import Control
import Messaging

/// Endpoints as they are given to a command or a method.
enum EndpointOption {
    /// - Parameter option: for the error.
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

    /// Where a node listens unless it is told otherwise.
    static let defaultPort: UInt16 = 7440

    /// A machine as a person writes it: HOST, HOST:PORT, [IPV6]:PORT, an address of IPv6, or a whole endpoint.
    static func place(_ text: String, option: String) throws(ControlError) -> Endpoint {
        let isAddress = text.filter { $0 == ":" }.count > 1 && !text.hasPrefix("[") && !text.contains("/")
        let hasPort = isAddress ? false : text.hasPrefix("[") ? !text.hasSuffix("]") : text.contains(":")
        let whole = isAddress ? "tcp://[\(text)]" : text.contains("://") ? text : "tcp://\(text)"
        guard let endpoint = Endpoint(hasPort ? whole : "\(whole):\(defaultPort)"), endpoint.relay == nil,
            endpoint.port > 0
        else {
            throw ControlError(
                .usage, "\(option): `\(text)` is not a machine",
                hint: "write HOST or HOST:PORT, an address of IPv6 with a port in brackets")
        }
        return endpoint
    }

    /// As ``place(_:option:)`` reads it back.
    static func place(of endpoint: Endpoint) -> String {
        guard endpoint.port != defaultPort else { return endpoint.host }
        return endpoint.host.contains(":") ? "[\(endpoint.host)]:\(endpoint.port)" : "\(endpoint.host):\(endpoint.port)"
    }
}
