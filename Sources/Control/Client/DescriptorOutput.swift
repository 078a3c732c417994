import Glibc

/// Writing to a file, a pipe or a terminal, whole.
package enum DescriptorOutput {
    /// Writes all of `bytes`, and waits where the descriptor does not block and has no room: it may be shared with a
    /// program that wants it so.
    /// - Returns: the error number that ended it; `nil` when all is written.
    package static func write(_ bytes: some Collection<UInt8>, to descriptor: Int32) -> Int32? {
        var rest = ArraySlice(bytes)
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count >= 0 {
                rest = rest.dropFirst(count)
            } else if errno == EAGAIN {
                var polled = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                if poll(&polled, 1, -1) < 0, errno != EINTR { return errno }
            } else if errno != EINTR {
                return errno
            }
        }
        return nil
    }
}
