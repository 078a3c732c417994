import Glibc
import NIOCore

extension Endpoint {
    /// Most addresses of a name that are tried.
    private static let addressCount = 8

    var isAddress: Bool { (try? SocketAddress(ipAddress: host, port: port)) != nil }

    /// The addresses of a name, as the system orders them (RFC 6724). Waits.
    func addresses() -> [Endpoint] {
        var hints = addrinfo()
        hints.ai_socktype = CInt(SOCK_DGRAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, nil, &hints, &list) == 0 else { return [] }
        defer { freeaddrinfo(list) }
        var result: [Endpoint] = []
        var next = list
        while let info = next?.pointee, result.count < Self.addressCount {
            var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
            if getnameinfo(info.ai_addr, info.ai_addrlen, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST) == 0 {
                let host = text.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
                result.append(Endpoint(host: host, port: port))
            }
            next = info.ai_next
        }
        return result
    }
}
