import Foundation
import Glibc
import Synchronization
import TestSupport

/// A NAT for UDP between a node and its dialers; over TCP its port is closed. The node sees each dialer under its own
/// address, and all can be moved to new ones at once.
final class DatagramRelay: Sendable {
    private let host = Loopback.next()
    private let port: UInt16
    private let listener: Int32
    private let target: sockaddr_in
    private let state = Mutex(State())

    private struct State {
        /// The socket by which the node sees each dialer.
        var doors: [Name: Int32] = [:]
        var passed = 0
        var isClosed = false
    }

    private struct Name: Hashable {
        let host: UInt32
        let port: UInt16
    }

    init(to target: TestNode) throws {
        self.target = LoopbackSocket.name(target.host, target.port)
        (listener, port) = try LoopbackSocket.bound(SOCK_DGRAM, at: host)
        Thread.detachNewThread { [self] in carry() }
    }

    var endpoint: String { "tcp://\(host):\(port)" }
    var passed: Int { state.withLock { $0.passed } }

    func move() {
        state.withLock { state in
            for door in state.doors.values { Glibc.close(door) }
            state.doors = [:]
        }
    }

    func close() { state.withLock { $0.isClosed = true } }

    private static func send(_ bytes: ArraySlice<UInt8>, by descriptor: Int32, to address: sockaddr_in) {
        var address = address
        _ = bytes.withUnsafeBytes { bytes in
            withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    sendto(descriptor, bytes.baseAddress, bytes.count, 0, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
        }
    }

    private func carry() {
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            let (doors, isClosed) = state.withLock { (Array($0.doors), $0.isClosed) }
            if isClosed {
                move()
                Glibc.close(listener)
                return
            }
            var polled = [pollfd(fd: listener, events: Int16(POLLIN), revents: 0)]
            polled += doors.map { pollfd(fd: $0.value, events: Int16(POLLIN), revents: 0) }
            guard poll(&polled, UInt(polled.count), 50) > 0 else { continue }
            for (index, polled) in polled.enumerated() where polled.revents & Int16(POLLIN) != 0 {
                var address = sockaddr_in()
                var length = socklen_t(MemoryLayout<sockaddr_in>.size)
                let count = withUnsafeMutablePointer(to: &address) { pointer in
                    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                        recvfrom(polled.fd, &chunk, chunk.count, Int32(MSG_DONTWAIT), $0, &length)
                    }
                }
                guard count > 0 else { continue }
                if index == 0 {
                    let name = Name(host: address.sin_addr.s_addr, port: address.sin_port)
                    let door = state.withLock { state in
                        state.passed += 1
                        if let door = state.doors[name] { return door }
                        let door = (try? LoopbackSocket.bound(SOCK_DGRAM, at: host).descriptor) ?? -1
                        state.doors[name] = door
                        return door
                    }
                    Self.send(chunk[..<count], by: door, to: target)
                } else {
                    let name = doors[index - 1].key
                    address.sin_family = sa_family_t(AF_INET)
                    address.sin_addr.s_addr = name.host
                    address.sin_port = name.port
                    state.withLock { $0.passed += 1 }
                    Self.send(chunk[..<count], by: listener, to: address)
                }
            }
        }
    }
}
