extension LanAddress {
    /// Whether the address may be globally reachable: IANA has not reserved it (RFC 6890). Documentation addresses
    /// count as global, because no machine has them. A gateway with a non-global outer address is itself behind a NAT.
    package var isGlobal: Bool {
        guard isIPv4 else { return high >> 61 == 1 }  // 2000::/3
        let address = UInt32(truncatingIfNeeded: low)
        return !Self.setAside.contains { address >> (32 - $0.length) == $0.network >> (32 - $0.length) }
    }

    private static let setAside: [(network: UInt32, length: UInt32)] = [
        (0x0000_0000, 8),  // this host
        (0x0a00_0000, 8), (0xac10_0000, 12), (0xc0a8_0000, 16),  // private, RFC 1918
        (0x6440_0000, 10),  // behind a provider's NAT, RFC 6598
        (0x7f00_0000, 8),  // loopback
        (0xa9fe_0000, 16),  // link-local
        (0xc000_0000, 24),  // protocols, RFC 6890; DS-Lite among them
        (0xc612_0000, 15),  // benchmarks
        (0xe000_0000, 4), (0xf000_0000, 4),  // multicast, reserved, broadcast
    ]
}
