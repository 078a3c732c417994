/// Bounds of the control socket. All are implementation limits: none is visible to another node.
package enum ControlLimits {
    /// Longest request line the server reads, in bytes, without its newline.
    package static let requestByteCount = 1 << 20
    /// Longest body of a request, in bytes.
    package static let bodyByteCount = 1 << 20
    /// Longest line the client reads, in bytes: a page of messages fits.
    package static let responseByteCount = 16 << 20
    /// Deepest nesting of arrays and objects in a line, in either direction.
    package static let nestingDepth = 32
    /// Connections served at the same time. For one more, the one that has been idle for longest is closed; when none is
    /// idle, the next ones wait in the kernel.
    package static let connections = 80
    /// Connections that may wait for others at the same time, by a subscription, an upload or a call that waits. The rest
    /// of ``connections`` is for calls that are answered at once.
    package static let waitingConnections = 64
    /// Descriptors that are kept for the next connections when the process has no other left.
    static let spareDescriptors = 4
    /// Requests of one connection under way at the same time; the next ones wait unread.
    package static let requestsInFlight = 64
    /// Texts in one `send`: the answer, a result for each, is shorter than a line may be.
    package static let textsInRequest = 4_096
    /// Bytes queued for a subscriber that does not read, before it is dropped.
    package static let eventBacklogByteCount = 1 << 20
    /// Longest path of a Unix socket on Linux, in bytes, without the final zero (`sun_path`, unix(7)).
    package static let socketPathByteCount = 107
    /// Connections the kernel may hold before they are accepted.
    static let listenBacklog: Int32 = 64
}
