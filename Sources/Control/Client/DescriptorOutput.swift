import Glibc

package enum DescriptorOutput {
    /// Writes all of `bytes`. Waits on a full non-blocking descriptor: another process may have set O_NONBLOCK on it.
    /// - Returns: the errno of a failure; `nil` after success.
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
