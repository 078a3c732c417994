import Glibc
import NIOCore

/// A blocking client of PCP (RFC 6887) or NAT-PMP (RFC 6886) with a socket per exchange: ``PCPExchange`` with a clock.
struct PCPClient {
    let method: MappingMethod
    let place: MappingPlace
    let key: [UInt8]
    let isGivenUp: @Sendable () -> Bool

    /// - Parameter mapping: the previous mapping, to be restored if possible.
    func map(suggesting mapping: Mapping?) -> PortMappingStateMachine.Outcome {
        var grant = MappingGrant(outer: anyAddress, tcp: 0, udp: nil, lifetime: .max)
        if method == .natPMP {
            switch exchange(.natPMP(nil)) {
            case .granted(_, let answer): grant.outer = answer.outer
            case .failed(let failure): return .failed(failure)
            case .send: return .failed(.malformed)
            }
        }
        // Both carriers should get the same number.
        var suggested = mapping?.tcp ?? place.port
        for carrier in place.carriers {
            switch exchange(request(carrier, outerPort: suggested, mapping?.outer ?? anyAddress), MappingLimits.lease) {
            case .granted(let lifetime, let map):
                if method == .pcp { grant.outer = map.outer }
                grant.lifetime = min(grant.lifetime, lifetime)
                suggested = map.outerPort
                // NAT-PMP finds an earlier mapping by its outer port, PCP by the nonce.
                if method == .natPMP, let mapping, mapping.ports.count > 1 { suggested = mapping.port(of: .udp) }
                if carrier == .tcp { grant.tcp = map.outerPort } else { grant.udp = map.outerPort }
            case .send: return .failed(.malformed)
            case .failed(let failure):
                // An earlier mapping stays: this may be a renewal whose requests were lost.
                if carrier == .udp, mapping == nil { remove() }
                return .failed(failure)
            }
        }
        return .granted(grant)
    }

    func remove() { for carrier in place.carriers { _ = exchange(request(carrier, outerPort: 0, anyAddress)) } }

    private var anyAddress: IPAddress { place.local.isIPv4 ? IPAddress(0, 0, 0, 0) : IPAddress(high: 0, low: 0) }

    private func request(_ carrier: MappingCarrier, outerPort: UInt16, _ outer: IPAddress) -> PCPRequest.Operation {
        let nonce = method == .pcp ? PCPNonce.derive(key: key, place, carrier) : []
        let map = PCPMap(nonce: nonce, carrier: carrier, innerPort: place.port, outerPort: outerPort, outer: outer)
        return method == .pcp ? .map(map) : .natPMP(map)
    }

    private func exchange(_ operation: PCPRequest.Operation, _ lifetime: UInt32 = 0) -> PCPExchange.Step {
        guard let descriptor = connected() else { return .failed(.silent) }
        defer { close(descriptor) }
        var exchange = PCPExchange(
            PCPRequest(operation, lifetime: lifetime, client: place.local), now: monotonicMilliseconds())
        while !isGivenUp() {
            var now = monotonicMilliseconds()
            switch exchange.advance(now: now) {
            case .send(let bytes)?:
                if send(descriptor, bytes, bytes.count, 0) < 0, errno == ECONNREFUSED, let step = exchange.unreachable()
                {
                    return step
                }
            case let step?: return step
            case nil: break
            }
            now = monotonicMilliseconds()
            if wait(descriptor, milliseconds: exchange.deadline - now) {
                var bytes = [UInt8](repeating: 0, count: 1_500)
                let count = recv(descriptor, &bytes, bytes.count, 0)
                if count < 0, errno == EAGAIN || errno == EINTR { continue }
                if count < 0, errno != ECONNREFUSED { return .failed(.silent) }
                let step = count < 0 ? exchange.unreachable() : exchange.receive(Array(bytes[..<count]))
                if let step { return step }
            }
        }
        return .failed(.silent)
    }

    /// Binds to the address in the request and accepts datagrams only from the server's port.
    private func connected() -> CInt? {
        let type = CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue) | CInt(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(place.local.isIPv4 ? AF_INET : AF_INET6, type, 0)
        guard descriptor >= 0 else { return nil }
        let isBound = place.local.withSocketAddress(port: 0, zone: place.local.isLinkLocal ? place.interface : 0) {
            bind(descriptor, $0, $1) == 0
        }
        let isConnected =
            isBound
            && place.gateway.withSocketAddress(
                port: PCPMessage.port, zone: place.gateway.isLinkLocal ? place.interface : 0
            ) { connect(descriptor, $0, $1) == 0 }
        guard isConnected else {
            close(descriptor)
            return nil
        }
        return descriptor
    }
}

/// Waits until the descriptor is readable, at most 100 ms, so that a cancellation is noticed.
func wait(_ descriptor: CInt, milliseconds: Int64) -> Bool {
    var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return poll(&polled, 1, CInt(min(max(milliseconds, 0), 100))) > 0
}

func monotonicMilliseconds() -> Int64 { Int64(NIODeadline.now().uptimeNanoseconds / 1_000_000) }
