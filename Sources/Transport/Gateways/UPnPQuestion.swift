/// A request of ``UPnPClient`` to ``UPnPHelper``, as a line of JSON.
struct UPnPQuestion: Codable {
    enum Verb: String, Codable { case map, look, remove }

    /// A gateway's service, with the fields that libminiupnpc needs.
    struct Place: Codable {
        var control: String
        var type: String
    }

    var verb: Verb
    var gateway: String
    var local: String
    var port: UInt16
    var hasDatagrams: Bool
    /// The outer ports: suggested, or of the mapping.
    var tcp: UInt16
    var udp: UInt16?
    /// The last location of the service.
    var found: Place?

    init(_ verb: Verb, _ place: MappingPlace, tcp: UInt16, udp: UInt16? = nil, found: Place?) {
        self.verb = verb
        gateway = place.gateway.text
        local = place.local.text
        port = place.port
        hasDatagrams = place.hasDatagrams
        self.tcp = tcp
        self.udp = udp
        self.found = found
    }

    var place: MappingPlace? {
        guard let gateway = LanAddress(text: gateway), let local = LanAddress(text: local) else { return nil }
        return MappingPlace(gateway: gateway, interface: 0, local: local, port: port, hasDatagrams: hasDatagrams)
    }
}

/// The answer of ``UPnPHelper``, as a line of JSON.
struct UPnPAnswer: Codable {
    enum Kind: String, Codable { case granted, alive, unsupported, silent, malformed, permanentOnly, refused }

    var kind: Kind
    var outer: String?
    var tcp: UInt16?
    var udp: UInt16?
    var lifetime: UInt32?
    var isThere: Bool?
    var code: Int?
    var found: UPnPQuestion.Place?

    init(_ outcome: PortMappingStateMachine.Outcome, found: UPnPQuestion.Place?) {
        self.found = found
        switch outcome {
        case .granted(let grant):
            kind = .granted
            outer = grant.outer.text
            (tcp, udp, lifetime) = (grant.tcp, grant.udp, grant.lifetime)
        case .alive(_, let address, let isThere):
            kind = .alive
            outer = address?.text
            self.isThere = isThere
        case .failed(.unsupported): kind = .unsupported
        case .failed(.silent): kind = .silent
        case .failed(.malformed), .failed(.notGlobal): kind = .malformed
        case .failed(.permanentOnly): kind = .permanentOnly
        case .failed(.refused(let code)):
            kind = .refused
            self.code = code
        }
    }

    /// Inconsistent fields give `malformed`.
    var outcome: PortMappingStateMachine.Outcome {
        let address = outer.flatMap { LanAddress(text: $0) }
        switch kind {
        case .granted:
            guard let address, let tcp, let lifetime else { return .failed(.malformed) }
            return .granted(MappingGrant(outer: address, tcp: tcp, udp: udp, lifetime: lifetime, epoch: nil))
        case .alive:
            guard let isThere else { return .failed(.malformed) }
            return .alive(epoch: nil, outer: address, isThere: isThere)
        case .unsupported: return .failed(.unsupported)
        case .silent: return .failed(.silent)
        case .malformed: return .failed(.malformed)
        case .permanentOnly: return .failed(.permanentOnly)
        case .refused: return .failed(.refused(code ?? 0))
        }
    }
}
