/// What is wrong with bytes from outside.
package enum WireError: Error, Hashable, Sendable {
    /// Not the encoding of anything we know: a damaged or hostile sender.
    case malformed(String)
    /// A field is longer than its limit.
    case tooLong(String)
}
