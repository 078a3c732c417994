package enum WireError: Error, Hashable, Sendable {
    /// Not a known encoding: a damaged or hostile sender.
    case malformed(String)
    /// A field is longer than its limit.
    case tooLong(String)
}
