/// Names of conversations and members: text for people, never an identifier.
enum DisplayName {
    /// At least one visible character, no control characters, any length.
    static func isDisplayable(_ text: String) -> Bool {
        !text.allSatisfy(\.isWhitespace)
            && text.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7f..<0xa0).contains($0.value) }
    }

    /// Checks a name from a member; `nil` is allowed.
    static func isValid(_ name: String?) -> Bool {
        name.map { isDisplayable($0) && $0.utf8.count <= Limits.nameByteCount } ?? true
    }

    /// Checks a name from our user; `nil` is allowed.
    static func check(_ name: String?) throws(CommandError) {
        guard let name else { return }
        guard isDisplayable(name) else { throw .invalidName }
        guard name.utf8.count <= Limits.nameByteCount else {
            throw .nameTooLong(byteCount: name.utf8.count, limit: Limits.nameByteCount)
        }
    }
}
