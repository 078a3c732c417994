/// Kinds with a lifetime of their own (Lifetime.md, "Terms").
package enum ContentKind: String, Hashable, Sendable, Codable, CaseIterable {
    /// Every content but a file.
    case text
    case attachment
}
