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
    /// Connections served at the same time; one more is told so and closed.
    package static let connections = 64
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
