enum Retry {
    /// Milliseconds between a failure and the next attempt.
    static let interval: Int64 = 1_000
}
