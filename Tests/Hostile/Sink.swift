import Foundation
import Glibc

/// A listener that accepts connections and closes them after a timeout or when bytes arrive.
enum Sink {
    /// Prints its port and runs until it is killed.
    /// - Parameter seconds: Timeout of a silent connection.
    static func run(seconds: Double) -> Never {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var name = sockaddr_in()
        name.sin_family = sa_family_t(AF_INET)
        name.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        withUnsafeMutablePointer(to: &name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = bind(listener, $0, size)
                _ = getsockname(listener, $0, &size)
            }
        }
        listen(listener, 1_024)
        _ = fcntl(listener, F_SETFL, O_NONBLOCK)
        print(UInt16(bigEndian: name.sin_port))
        fflush(nil)
        var open: [(descriptor: Int32, since: ContinuousClock.Instant)] = []
        while true {
            // Accepts in batches, like a busy server.
            for _ in 0..<64 {
                let descriptor = accept(listener, nil, nil)
                guard descriptor >= 0 else { break }
                open.append((descriptor, .now))
            }
            let overdue = open.prefix { .now - $0.since > .seconds(seconds) }.prefix(64).count
            for connection in open.prefix(overdue) { close(connection.descriptor) }
            open.removeFirst(overdue)
            // Clients send at once, so only the newest connections are polled.
            var kept = open.dropLast(min(64, open.count))[...]
            for connection in open.suffix(64) {
                var byte: UInt8 = 0
                if recv(connection.descriptor, &byte, 1, Int32(MSG_DONTWAIT)) > 0 {
                    close(connection.descriptor)
                } else {
                    kept.append(connection)
                }
            }
            open = Array(kept)
            let awaited = [listener] + open.suffix(64).map(\.descriptor)
            var polled = awaited.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            poll(&polled, nfds_t(polled.count), 5)
        }
    }
}
