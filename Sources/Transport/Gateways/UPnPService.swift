import CMiniUPnP

/// A gateway's WANIPConnection or WANPPPConnection service (UPnP Forum, Internet Gateway Device), by libminiupnpc.
/// Blocks. Only asks services at the default gateway's own address. The library parses answers of any length in C, so
/// it runs in a separate process (``UPnPHelper``).
struct UPnPService {
    /// The last location, because a search takes seconds.
    private var found: igd_service?

    /// The URL and the type of the service; empty texts if it is not known.
    var location: [String] {
        guard let found else { return ["", ""] }
        func text(_ field: UnsafeRawBufferPointer) -> String { Self.string(field.bindMemory(to: CChar.self)) }
        return [withUnsafeBytes(of: found.control, text), withUnsafeBytes(of: found.type, text)]
    }

    /// - Parameter location: empty if it is not known.
    init(location: ArraySlice<String>) {
        var service = igd_service()
        guard location.count == 2, let control = location.first?.utf8, let type = location.last?.utf8,
            control.count < MemoryLayout.size(ofValue: service.control),
            type.count < MemoryLayout.size(ofValue: service.type)
        else { return }
        withUnsafeMutableBytes(of: &service.control) { $0.copyBytes(from: control) }
        withUnsafeMutableBytes(of: &service.type) { $0.copyBytes(from: type) }
        found = service
    }

    private static let searchMilliseconds: CInt = 1_000
    /// Outer ports to try when one is taken by another machine.
    private static let portTries = 4

    // Error codes of the gateway.
    private static let conflict: CInt = 718
    private static let permanentOnly: CInt = 725

    mutating func map(_ place: MappingPlace, suggesting port: UInt16) -> PortMappingStateMachine.Outcome {
        with(place) { service in
            var text = [CChar](repeating: 0, count: 64)
            let code = igd_outer_address(&service, &text)
            guard code == 0 else { return (.failed(Self.failure(code)), code) }
            guard let outer = IPAddress(text: Self.string(text)) else { return (.failed(.malformed), 0) }
            var candidate = port
            var last: CInt = 0
            for _ in 0..<Self.portTries {
                let (lifetime, code) = Self.add(&service, place, outer: candidate)
                if let lifetime {
                    let udp = place.hasDatagrams ? candidate : nil
                    let grant = MappingGrant(outer: outer, tcp: candidate, udp: udp, lifetime: lifetime)
                    return (.granted(grant), 0)
                }
                last = code
                guard code == Self.conflict else { break }
                candidate = UInt16.random(in: 49_152...65_535)
            }
            return (.failed(Self.failure(last)), last)
        }
    }

    /// Maps both carriers under one outer port, or none.
    /// - Returns: the shorter lease in seconds, or `nil` and the gateway's error code.
    private static func add(_ service: inout igd_service, _ place: MappingPlace, outer: UInt16) -> (UInt32?, CInt) {
        var lifetime = MappingLimits.lease
        var done: [MappingCarrier] = []
        func undo() { for carrier in done { _ = igd_remove(&service, UInt32(outer), carrier.upnpName) } }
        for carrier in place.carriers {
            let (outer, inner) = (UInt32(outer), UInt32(place.port))
            let code = igd_add(&service, outer, inner, place.local.text, carrier.upnpName, MappingLimits.lease)
            guard code == 0 else {
                undo()
                return (nil, code)
            }
            done.append(carrier)
            var client = [CChar](repeating: 0, count: 64)
            var (port, seconds): (UInt32, UInt32) = (0, 0)
            // If the gateway does not tell the lease, assume the requested one.
            guard igd_entry(&service, outer, carrier.upnpName, &client, &port, &seconds) == 0 else { continue }
            // Some gateways ignore the lease and keep the mapping until they restart.
            guard seconds > 0 else {
                undo()
                return (nil, permanentOnly)
            }
            lifetime = min(lifetime, seconds)
        }
        return (lifetime, 0)
    }

    /// `tcp`, `udp`: the outer ports. Ignores errors: the lease ends by itself. Always returns a failure, which the
    /// caller ignores.
    mutating func remove(_ place: MappingPlace, tcp: UInt16, udp: UInt16?) -> PortMappingStateMachine.Outcome {
        with(place) { service in
            for carrier in place.carriers {
                _ = igd_remove(&service, UInt32(carrier == .tcp ? tcp : udp ?? tcp), carrier.upnpName)
            }
            return (.failed(.silent), 0)
        }
    }

    /// Calls `body` with the gateway's service. Searches for it if its location is unknown or outdated.
    private mutating func with(
        _ place: MappingPlace, _ body: (inout igd_service) -> (PortMappingStateMachine.Outcome, CInt)
    ) -> PortMappingStateMachine.Outcome {
        if var known = found {
            let (outcome, code) = body(&known)
            // The library's own codes are negative: the service did not answer.
            if code >= 0 { return outcome }
        }
        found = nil
        var service = igd_service()
        switch igd_find(place.gateway.text, place.local.text, Self.searchMilliseconds, &service) {
        case 0: break
        case -2: return .failed(.unsupported)
        default: return .failed(.silent)
        }
        found = service
        return body(&service).0
    }

    /// - Parameter code: the library's, below zero, or the gateway's.
    private static func failure(_ code: CInt) -> MappingFailure {
        switch code {
        case permanentOnly: .permanentOnly
        case 1...: .refused(Int(code))
        default: .silent
        }
    }

    static func string(_ text: some Sequence<CChar>) -> String {
        String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

extension MappingCarrier { fileprivate var upnpName: String { self == .tcp ? "TCP" : "UDP" } }
