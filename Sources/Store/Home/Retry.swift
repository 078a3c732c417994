enum Retry {
    /// How long after a failure the next attempt is due, in milliseconds.
    static let interval: Int64 = 1_000
}
