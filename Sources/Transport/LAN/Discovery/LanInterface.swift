/// A network interface of this machine, such as `eth0`, with its addresses.
package struct LanInterface: Hashable, Sendable {
    /// An address of ours.
    package struct Own: Hashable, Sendable {
        package let address: LanAddress
        /// Bits that the addresses of this network have in common.
        package let prefixLength: Int
        /// Packets to other networks leave with this address.
        package let isDefault: Bool
        /// Where the node takes links under this address, TCP and UDP alike; `nil` where it does not.
        package var port: UInt16?

        package init(address: LanAddress, prefixLength: Int, isDefault: Bool = false, port: UInt16? = nil) {
            self.address = address
            self.prefixLength = prefixLength
            self.isDefault = isDefault
            self.port = port
        }
    }

    package enum Kind: Hashable, Sendable {
        /// Hardware, and what stands for hardware: a VLAN, a bond, a macvlan.
        case device
        case loopback
        case bridge
        /// One end of a cable between two network namespaces: of a container, or toward one.
        case veth
        /// Made by software, without a cable: tap, tunnel, dummy.
        case software
    }

    /// The system's number of it.
    package let index: UInt32
    package let name: String
    package let kind: Kind
    /// Number of the bridge, bond or switch whose port this is: packets come and go under the addresses of that one.
    package let master: UInt32?
    /// It is up, has a carrier and multicast, and is neither a loopback nor point-to-point.
    package let hasMulticast: Bool
    package var addresses: [Own]

    package init(
        index: UInt32, name: String, kind: Kind = .device, master: UInt32? = nil, hasMulticast: Bool = true,
        addresses: [Own]
    ) {
        self.index = index
        self.name = name
        self.kind = kind
        self.master = master
        self.hasMulticast = hasMulticast
        self.addresses = addresses
    }

    /// Whether a machine with this address is on this network and not behind a router.
    package func isNear(_ other: LanAddress) -> Bool {
        guard other.isUnicast, !other.isLoopback else { return false }
        return addresses.contains { $0.address.shares($0.prefixLength, with: other) }
    }
}

extension [LanInterface] {
    /// Interfaces by which other machines may be reached. Left out are the loopback, ports of a bridge, bridges that join
    /// containers of this machine alone, and the ends of veths toward containers, which have link-local addresses alone.
    package var outward: [LanInterface] {
        let cabled = Set(compactMap { $0.kind == .device ? $0.master : nil })
        return filter { interface in
            guard interface.master == nil else { return false }
            if interface.addresses.contains(where: \.isDefault) { return true }
            switch interface.kind {
            case .device, .software: return true
            case .loopback: return false
            case .bridge: return cabled.contains(interface.index)
            case .veth: return interface.addresses.contains { !$0.address.isLinkLocal }
            }
        }
    }

    /// Interfaces on which members may be near: those that are named, else the outward ones; without any of these, a lone
    /// cable between two namespaces.
    /// - Parameter names: `nil` for all.
    package func near(named names: Set<String>?) -> [LanInterface] {
        let usable = filter { $0.hasMulticast && !$0.addresses.isEmpty }
        let indices = Set(outward.map(\.index))
        var result = usable.filter { names?.contains($0.name) ?? indices.contains($0.index) }
        if names == nil, result.isEmpty { result = usable.filter { $0.master == nil } }
        return Array(result.prefix(LanLimits.interfaceCount))
    }
}
