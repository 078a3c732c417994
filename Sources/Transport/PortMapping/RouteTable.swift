/// A default gateway from the kernel's tables (proc(5), `/proc/net/route` and `/proc/net/ipv6_route`).
package struct DefaultRoute: Hashable, Sendable {
    package let gateway: IPAddress
    package let interface: String
    package let metric: UInt32
}

package enum RouteTable {
    private static let flagsUp: UInt32 = 0x1
    private static let flagsGateway: UInt32 = 0x2

    /// The best default route of `/proc/net/route`: Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask …,
    /// with addresses as numbers in the machine's byte order.
    package static func ipv4(_ text: String) -> DefaultRoute? {
        best(
            text.split(separator: "\n").dropFirst().compactMap { line in
                let fields = line.split { $0 == "\t" || $0 == " " }
                guard fields.count >= 8, UInt32(fields[1], radix: 16) == 0, UInt32(fields[7], radix: 16) == 0,
                    let gateway = UInt32(fields[2], radix: 16), isGateway(fields[3]),
                    let address = IPAddress(withUnsafeBytes(of: gateway) { Array($0) }), let metric = UInt32(fields[6])
                else { return nil }
                return DefaultRoute(gateway: address, interface: String(fields[0]), metric: metric)
            })
    }

    /// The best default route of `/proc/net/ipv6_route`: destination, its length, source, its length, next hop, metric,
    /// counts, flags, device; all hexadecimal.
    package static func ipv6(_ text: String) -> DefaultRoute? {
        best(
            text.split(separator: "\n").compactMap { line in
                let fields = line.split(separator: " ")
                guard fields.count >= 10, fields[0].allSatisfy({ $0 == "0" }), fields[1] == "00", fields[3] == "00",
                    isGateway(fields[8]), let bytes = bytes(fields[4]), let address = IPAddress(bytes),
                    let metric = UInt32(fields[5], radix: 16)
                else { return nil }
                return DefaultRoute(gateway: address, interface: String(fields[9]), metric: metric)
            })
    }

    private static func isGateway(_ flags: Substring) -> Bool {
        UInt32(flags, radix: 16).map { $0 & (flagsUp | flagsGateway) == flagsUp | flagsGateway } ?? false
    }

    private static func bytes(_ text: Substring) -> [UInt8]? {
        guard text.utf8.count == 32 else { return nil }
        var result: [UInt8] = []
        var rest = text
        while !rest.isEmpty {
            guard let byte = UInt8(rest.prefix(2), radix: 16) else { return nil }
            result.append(byte)
            rest = rest.dropFirst(2)
        }
        return result
    }

    private static func best(_ routes: [DefaultRoute]) -> DefaultRoute? {
        routes.filter { $0.gateway.isUnicast && !$0.gateway.isLoopback }.min { $0.metric < $1.metric }
    }
}
