/// What lifetimes distinguish (protocol, section 6, point 12).
package enum ContentKind: String, Hashable, Sendable, Codable, CaseIterable {
    /// Everything that is no file.
    case text
    case attachment
}
