import CNATPMP
import Glibc

/// A blocking NAT-PMP client (RFC 6886) with libnatpmp. The library retransmits after 250 ms with doubling intervals.
/// The timeout equals that of PCP.
struct NATPMPClient {
    private let place: MappingPlace
    private let isGivenUp: @Sendable () -> Bool

    init(_ place: MappingPlace, _ isGivenUp: @escaping @Sendable () -> Bool) {
        self.place = place
        self.isGivenUp = isGivenUp
    }

    private static let patience: Int64 = 3_750

    /// - Parameters: the outer ports to ask for.
    func map(tcp: UInt16, udp: UInt16) -> PortMappingStateMachine.Outcome {
        var grant: MappingGrant
        switch address() {
        case .success(let (outer, epoch)):
            grant = MappingGrant(outer: outer, tcp: 0, udp: nil, lifetime: .max, epoch: epoch)
        case .failure(let failure): return .failed(failure.why)
        }
        var suggested = tcp
        for carrier in place.carriers {
            switch request(carrier, outerPort: suggested, MappingLimits.lease) {
            case .success(let answer):
                let mapped = answer.pnu.newportmapping
                grant.lifetime = min(grant.lifetime, mapped.lifetime)
                grant.epoch = answer.epoch
                suggested = tcp == udp ? mapped.mappedpublicport : udp
                switch carrier {
                case .tcp: grant.tcp = mapped.mappedpublicport
                case .udp: grant.udp = mapped.mappedpublicport
                }
            case .failure(let failure):
                if carrier == .udp { _ = request(.tcp, outerPort: 0, 0) }
                return .failed(failure.why)
            }
        }
        return .granted(grant)
    }

    func look() -> PortMappingStateMachine.Outcome {
        switch address() {
        case .success(let (outer, epoch)): .alive(epoch: epoch, outer: outer, isThere: true)
        case .failure(let failure): .failed(failure.why)
        }
    }

    func remove() { for carrier in place.carriers { _ = request(carrier, outerPort: 0, 0) } }

    // MARK: The library

    private struct Failure: Error { let why: MappingFailure }

    private func address() -> Result<(LanAddress, UInt32), Failure> {
        exchange { sendpublicaddressrequest(&$0) }.flatMap { answer in
            let bytes = withUnsafeBytes(of: answer.pnu.publicaddress.addr) { Array($0) }
            guard answer.type == UInt16(NATPMP_RESPTYPE_PUBLICADDRESS), let outer = LanAddress(bytes) else {
                return .failure(Failure(why: .malformed))
            }
            return .success((outer, answer.epoch))
        }
    }

    private func request(_ carrier: MappingCarrier, outerPort: UInt16, _ lifetime: UInt32) -> Result<
        natpmpresp_t, Failure
    > {
        let name = carrier == .udp ? NATPMP_PROTOCOL_UDP : NATPMP_PROTOCOL_TCP
        let expected = carrier == .udp ? NATPMP_RESPTYPE_UDPPORTMAPPING : NATPMP_RESPTYPE_TCPPORTMAPPING
        return exchange { sendnewportmappingrequest(&$0, name, place.port, outerPort, lifetime) }.flatMap { answer in
            guard answer.type == UInt16(expected), answer.pnu.newportmapping.privateport == place.port else {
                return .failure(Failure(why: .malformed))
            }
            return .success(answer)
        }
    }

    /// Each exchange has a socket of its own. A retransmitted request may be answered twice, and the library would take
    /// the second answer for the next request's.
    private func exchange(_ send: (inout natpmp_t) -> CInt) -> Result<natpmpresp_t, Failure> {
        var gateway = natpmp_t()
        let address = place.gateway.bytes.withUnsafeBytes { $0.loadUnaligned(as: in_addr_t.self) }
        guard initnatpmp(&gateway, 1, address) == 0 else { return .failure(Failure(why: .silent)) }
        defer { closenatpmp(&gateway) }
        guard send(&gateway) >= 0 else { return .failure(Failure(why: .silent)) }
        return answer(&gateway)
    }

    private func answer(_ gateway: inout natpmp_t) -> Result<natpmpresp_t, Failure> {
        let end = monotonicMilliseconds() + Self.patience
        var answer = natpmpresp_t()
        while !isGivenUp(), monotonicMilliseconds() < end {
            var left = timeval()
            guard getnatpmprequesttimeout(&gateway, &left) == 0 else { return .failure(Failure(why: .silent)) }
            let milliseconds = Int64(left.tv_sec) * 1_000 + Int64(left.tv_usec) / 1_000
            // Not early: the library treats every call as the end of a wait.
            if !wait(gateway.s, milliseconds: milliseconds), milliseconds > 100 { continue }
            let result = readnatpmpresponseorretry(&gateway, &answer)
            switch result {
            case 0: return .success(answer)
            case NATPMP_TRYAGAIN: continue
            // NATPMP_ERR_NOGATEWAYSUPPORT; unsupported version or operation.
            case -7, -14, -15: return .failure(Failure(why: .unsupported))
            // The gateway's result codes, RFC 6886, section 3.5.
            case -53 ... -49: return .failure(Failure(why: .refused(-49 - Int(result))))
            // NATPMP_ERR_RECVFROM, for instance when the port is closed.
            case -5: return .failure(Failure(why: .unsupported))
            default: return .failure(Failure(why: .malformed))
            }
        }
        return .failure(Failure(why: .silent))
    }
}
