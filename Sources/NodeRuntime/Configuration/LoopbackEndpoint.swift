import Messaging

/// A loopback address and a TCP port: `127.0.0.1:9464` or `[::1]:9464`.
package struct LoopbackEndpoint: Hashable, Sendable, Codable, CustomStringConvertible {
    package let host: String
    package let port: UInt16

    /// - Returns: `nil` for host names and for non-loopback addresses.
    package init?(_ text: String) {
        guard let endpoint = Endpoint("tcp://\(text)") else { return nil }
        let parts = endpoint.host.split(separator: ".", omittingEmptySubsequences: false)
        let isIPv4 = parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0) != nil }
        guard isIPv4 || endpoint.host == "::1" else { return nil }
        host = endpoint.host
        port = endpoint.port
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let text = try container.decode(String.self)
        guard let value = LoopbackEndpoint(text) else {
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "expected a loopback address with a port, such as 127.0.0.1:9464, found `\(text)`")
        }
        self = value
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }

    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}
