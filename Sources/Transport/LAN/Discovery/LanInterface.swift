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

/// An address on one interface and a port: a source of our announcements or of a received datagram.
package struct LanPlace: Hashable, Sendable, Comparable {
    package let interface: UInt32
    package let address: IPAddress
    package let port: UInt16

    package init(interface: UInt32, address: IPAddress, port: UInt16) {
        self.interface = interface
        self.address = address
        self.port = port
    }

    package static func < (left: LanPlace, right: LanPlace) -> Bool {
        (left.interface, left.address, left.port) < (right.interface, right.address, right.port)
    }
}

/// Decodes the kernel's dump of interfaces and addresses: rtnetlink(7). Values are in the machine's byte order.
enum InterfaceDump {
    enum Request: UInt16 {
        /// RTM_GETLINK, RTM_GETADDR
        case links = 18
        case addresses = 22

        /// struct nlmsghdr, with NLM_F_REQUEST | NLM_F_DUMP, and struct rtgenmsg for all families, padded.
        var bytes: [UInt8] {
            InterfaceDump.native(UInt32(20)) + InterfaceDump.native(rawValue) + InterfaceDump.native(UInt16(0x301))
                + [UInt8](repeating: 0, count: 12)
        }
    }

    /// The interfaces in both answers, by index. Unreadable entries are skipped.
    /// - Parameter isDefault: whether packets to other networks have this source address.
    static func interfaces(links: [UInt8], addresses: [UInt8], isDefault: (IPAddress) -> Bool) -> [LanInterface] {
        var own: [UInt32: [LanInterface.Own]] = [:]
        // RTM_NEWADDR with struct ifaddrmsg: family 1, prefix 1, flags 1, scope 1, index 4.
        for body in messages(addresses[...], type: 20) {
            guard body.count >= 8 else { continue }
            // IFA_F_DADFAILED, and IFA_F_TENTATIVE without IFA_F_OPTIMISTIC: the address cannot send yet.
            let flags = body[body.startIndex + 2]
            guard flags & 0x8 == 0, flags & 0x44 != 0x40 else { continue }
            let values = attributes(body.dropFirst(8))
            // On a point-to-point link IFA_LOCAL is ours, and IFA_ADDRESS the peer's.
            guard let address = (values[2] ?? values[1]).flatMap({ IPAddress($0) }) else { continue }
            own[number(body.dropFirst(4)), default: []].append(
                LanInterface.Own(
                    address: address, prefixLength: Int(body[body.startIndex + 1]), isDefault: isDefault(address)))
        }
        // RTM_NEWLINK with struct ifinfomsg: family 1, padding 1, type 2, index 4, flags 4, change 4.
        return messages(links[...], type: 16).compactMap { body in
            guard body.count >= 16 else { return nil }
            let index = number(body.dropFirst(4))
            let flags = number(body.dropFirst(8))
            let values = attributes(body.dropFirst(16))
            let about = values[18].map(attributes) ?? [:]  // IFLA_LINKINFO
            guard let name = values[3].map(text) else { return nil }  // IFLA_IFNAME
            // IFLA_INFO_SLAVE_KIND. A VRF has routes of its own, but its ports keep their addresses.
            let isPort = about[4].map(text) != "vrf"
            return LanInterface(
                index: index, name: name, kind: kind(flags: flags, about[1].map(text)),  // IFLA_INFO_KIND
                master: isPort ? values[10].map(number) : nil,  // IFLA_MASTER
                hasMulticast: isUsable(flags), addresses: own[index] ?? [])
        }.sorted { $0.index < $1.index }
    }

    private static func kind(flags: UInt32, _ kind: String?) -> LanInterface.Kind {
        if flags & 0x8 != 0 { return .loopback }
        switch kind {
        case "bridge": return .bridge
        case "veth": return .veth
        case nil, "vlan", "bond", "team", "macvlan", "ipvlan", "macvtap", "virt_wifi", "dsa", "hsr": return .device
        default: return .software
        }
    }

    /// Excludes point-to-point interfaces: the other end of a tunnel is not on-link.
    private static func isUsable(_ flags: UInt32) -> Bool {
        // IFF_UP, IFF_RUNNING and IFF_MULTICAST without IFF_LOOPBACK and IFF_POINTOPOINT.
        flags & 0x1059 == 0x1041
    }

    /// Whether the answer ends in these bytes, with NLMSG_DONE or NLMSG_ERROR.
    static func end(of bytes: ArraySlice<UInt8>) -> (isThere: Bool, isError: Bool) {
        let isError = !messages(bytes, type: 2).isEmpty
        return (isError || !messages(bytes, type: 3).isEmpty, isError)
    }

    /// struct nlmsghdr: length 4, type 2, flags 2, sequence 4, port 4.
    private static func messages(_ bytes: ArraySlice<UInt8>, type: UInt16) -> [ArraySlice<UInt8>] {
        var result: [ArraySlice<UInt8>] = []
        var rest = bytes
        while rest.count >= 16 {
            let length = Int(number(rest))
            guard length >= 16, length <= rest.count else { break }
            if short(rest.dropFirst(4)) == type { result.append(rest.prefix(length).dropFirst(16)) }
            rest = rest.dropFirst(padded(length))
        }
        return result
    }

    /// struct rtattr: length 2, type 2. The highest bits of the type are flags.
    private static func attributes(_ bytes: ArraySlice<UInt8>) -> [UInt16: ArraySlice<UInt8>] {
        var result: [UInt16: ArraySlice<UInt8>] = [:]
        var rest = bytes
        while rest.count >= 4 {
            let length = Int(short(rest))
            guard length >= 4, length <= rest.count else { break }
            result[short(rest.dropFirst(2)) & 0x3fff] = rest.prefix(length).dropFirst(4)
            rest = rest.dropFirst(padded(length))
        }
        return result
    }

    private static func padded(_ length: Int) -> Int { (length + 3) & ~3 }

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt32 {
        bytes.count < 4 ? 0 : bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
    }

    private static func short(_ bytes: ArraySlice<UInt8>) -> UInt16 {
        bytes.count < 2 ? 0 : bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt16.self) }
    }

    private static func text(_ bytes: ArraySlice<UInt8>) -> String {
        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }

    private static func native(_ number: some FixedWidthInteger) -> [UInt8] {
        withUnsafeBytes(of: number) { Array($0) }
    }
}
