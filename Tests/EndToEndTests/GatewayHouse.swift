import Foundation
import Glibc
import Testing

/// Network namespaces of a house and its router: `ann` inside, at 192.168.1.2 and 2a00:2::2; the router at 5.5.5.2;
/// `bob` outside, at 6.6.6.1, 6.6.6.3 and 2a00:1::1. The router runs Debian's miniupnpd, which speaks PCP, NAT-PMP and
/// UPnP.
final class GatewayHouse {
    enum Methods { case all, withoutPCP, upnpOnly }

    let directory: String
    private let tag = "mf\(UUID().uuidString.prefix(6))"
    private var daemon: Child?
    var inside: String { "\(tag)a" }
    var outside: String { "\(tag)b" }
    var router: String { "\(tag)r" }

    /// Whether this test may make namespaces, and miniupnpd is installed.
    static let canBeBuilt = Program.offers { Program.canMakeNamespaces && access("/usr/sbin/miniupnpd", X_OK) == 0 }
    static let reason = "it needs root, network namespaces, nftables and miniupnpd"

    init(in directory: String, methods: Methods = .all) throws {
        self.directory = directory
        for name in [inside, outside, router] {
            try Program.tool("ip", "netns", "add", name)
            try Program.tool("ip", "-n", name, "link", "set", "lo", "up")
        }
        try ip(router, "link add lan type veth peer name eth0 netns \(inside)")
        try ip(router, "link add wan type veth peer name eth0 netns \(outside)")
        for (name, device) in [(router, "lan"), (router, "wan"), (inside, "eth0"), (outside, "eth0")] {
            try ip(name, "link set \(device) up")
        }
        try ip(router, "addr add 192.168.1.1/24 dev lan")
        try ip(router, "addr add 5.5.5.2/24 dev wan")
        // Two networks on one cable, so that outside hosts are not the router's neighbours.
        for address in ["6.6.6.1", "6.6.6.3"] { try ip(outside, "addr add \(address)/32 dev eth0") }
        try ip(outside, "route add 5.5.5.0/24 dev eth0 src 6.6.6.1")
        try ip(router, "route add 6.6.6.0/24 dev wan")
        try ip(inside, "addr add 192.168.1.2/24 dev eth0")
        try ip(inside, "route add default via 192.168.1.1")
        try ip(router, "addr add fe80::1/64 dev lan nodad")
        try ip(router, "addr add 2a00:2::1/64 dev lan nodad")
        try ip(router, "addr add 2a00:1::2/64 dev wan nodad")
        try ip(outside, "addr add 2a00:1::1/64 dev eth0 nodad")
        try ip(outside, "route add 2a00:2::/64 via 2a00:1::2")
        try ip(inside, "addr add 2a00:2::2/64 dev eth0 nodad")
        try ip(inside, "route add default via fe80::1 dev eth0")
        for path in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            try Program.tool("ip", "netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/\(path)")
        }
        try rules(methods: methods)
    }

    deinit {
        daemon?.signal(SIGKILL)
        _ = daemon?.wait(seconds: 10)
        for name in [inside, outside, router] { _ = try? Program.tool("ip", "netns", "del", name) }
    }

    private func ip(_ name: String, _ words: String) throws {
        try Program.tool("sh", "-c", "exec ip -n \(name) \(words)")
    }

    func nft(_ text: String) throws {
        let path = "\(directory)/rules.nft"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        try Program.tool("ip", "netns", "exec", router, "nft", "-f", path)
    }

    private func rules(methods: Methods) throws {
        // The first byte of a request to a PCP server is its version, 2; NAT-PMP's is 0.
        let refused =
            switch methods {
            case .all: ""
            case .withoutPCP: "udp dport 5351 @th,64,8 2 reject"
            case .upnpOnly: "udp dport 5351 reject"
            }
        try nft(
            """
            flush ruleset
            table inet filter {
              counter asked {}
              chain input {
                type filter hook input priority 0
                iifname lan udp dport { 1900, 5351 } counter name asked
                \(refused)
              }
              chain forward {
                type filter hook forward priority 0
                policy drop
                ct state established,related accept
                iifname lan accept
                meta l4proto ipv6-icmp accept
                jump miniupnpd
              }
              chain miniupnpd {}
              chain prerouting {
                type nat hook prerouting priority -100
                jump prerouting_miniupnpd
              }
              chain prerouting_miniupnpd {}
              chain postrouting {
                type nat hook postrouting priority 100
                meta nfproto ipv4 oifname wan masquerade
              }
              chain postrouting_miniupnpd {}
            }
            """)
    }

    func startGateway() throws {
        let path = "\(directory)/miniupnpd.conf"
        try """
        ext_ifname=wan
        listening_ip=lan
        enable_natpmp=yes
        enable_upnp=yes
        secure_mode=yes
        min_lifetime=60
        max_lifetime=86400
        uuid=00000000-0000-4000-8000-000000000001
        upnp_table_name=filter
        upnp_nat_table_name=filter
        lease_file=\(directory)/leases
        """.write(toFile: path, atomically: true, encoding: .utf8)
        try start(["miniupnpd", "-d", "-f", path, "-P", "\(directory)/miniupnpd.pid"])
        try eventually("the gateway listens") {
            try Program.tool("ip", "netns", "exec", router, "cat", "/proc/net/udp").contains(":14E7 ")
        }
    }

    private func start(_ command: [String]) throws {
        let log = "\(directory)/gateway.log"
        daemon = try Child(
            ["ip", "netns", "exec", router] + command, output: try Descriptor(log, O_WRONLY | O_CREAT | O_APPEND),
            errors: try Descriptor(log, O_WRONLY | O_CREAT | O_APPEND))
    }

    var log: String { Program.text("\(directory)/gateway.log") }

    /// The router's mappings: a line for each translated protocol.
    func mappings() throws -> [String] {
        try Program.tool(
            "ip", "netns", "exec", router, "nft", "list", "chain", "inet", "filter", "prerouting_miniupnpd"
        ).split(separator: "\n").map(String.init).filter { $0.contains("dnat") }
    }

    /// IPv6 pinholes, and the rules of the translations.
    func openings() throws -> [String] {
        try Program.tool("ip", "netns", "exec", router, "nft", "list", "chain", "inet", "filter", "miniupnpd").split(
            separator: "\n"
        ).map(String.init).filter { $0.contains("accept") }
    }

    /// Packets from inside to the ports of PCP, NAT-PMP and UPnP.
    func askedCount() throws -> Int {
        let text = try Program.tool("ip", "netns", "exec", router, "nft", "list", "counter", "inet", "filter", "asked")
        let words = text.split(whereSeparator: \.isWhitespace)
        return words.firstIndex(of: "packets").flatMap { Int(words[$0 + 1]) } ?? -1
    }
}
