package struct LanInterface: Hashable, Sendable {
    package struct Own: Hashable, Sendable {
        package let address: IPAddress
        package let prefixLength: Int
        /// Packets to other networks have this source.
        package let isDefault: Bool
        /// The port at which the node accepts links under this address, for TCP and UDP; `nil` if it does not.
        package var port: UInt16?

        package init(address: IPAddress, prefixLength: Int, isDefault: Bool = false, port: UInt16? = nil) {
            self.address = address
            self.prefixLength = prefixLength
            self.isDefault = isDefault
            self.port = port
        }
    }

    package enum Kind: Hashable, Sendable {
        /// Hardware, or a substitute: a VLAN, a bond, a macvlan.
        case device
        case loopback
        case bridge
        /// One end of a virtual cable between two network namespaces.
        case veth
        /// Made by software, without a cable: tap, tunnel, dummy.
        case software
    }

    package let index: UInt32
    package let name: String
    package let kind: Kind
    /// Index of the bridge, bond or switch that this interface is a port of: packets use the addresses of the master.
    package let master: UInt32?
    /// Up, with carrier and multicast, and neither a loopback nor point-to-point.
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

    /// Whether this address is on-link, not behind a router.
    package func isNear(_ other: IPAddress) -> Bool {
        guard other.isUnicast, !other.isLoopback else { return false }
        return addresses.contains { $0.address.shares($0.prefixLength, with: other) }
    }
}

extension [LanInterface] {
    /// The addresses at which we listen, with their ports, sorted.
    var places: [LanPlace] {
        flatMap { interface in
            interface.addresses.compactMap { own in
                own.port.map { LanPlace(interface: interface.index, address: own.address, port: $0) }
            }
        }.sorted()
    }

    /// Interfaces that may reach other machines. Excludes the loopback, ports of a bridge, bridges that join only
    /// containers of this machine, and veth ends with only link-local addresses.
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

    /// Interfaces on which members may be: the named ones, otherwise the outward ones. If there are none, a lone cable
    /// between two namespaces.
    /// - Parameter names: `nil` for all.
    package func near(named names: Set<String>?) -> [LanInterface] {
        let usable = filter { $0.hasMulticast && !$0.addresses.isEmpty }
        let indices = Set(outward.map(\.index))
        var result = usable.filter { names?.contains($0.name) ?? indices.contains($0.index) }
        if names == nil, result.isEmpty { result = usable.filter { $0.master == nil } }
        return Array(result.prefix(LanLimits.interfaceCount))
    }
}
