/// Names that members choose and see, of a conversation or of themselves: text for people, never a key to anything.
enum DisplayName {
    /// At least one visible character, no control characters; of whatever length.
    static func isDisplayable(_ text: String) -> Bool {
        !text.allSatisfy(\.isWhitespace)
            && text.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7f..<0xa0).contains($0.value) }
    }

    /// A name in what a member has sent; `nil` for none, which is allowed.
    static func isValid(_ name: String?) -> Bool {
        name.map { isDisplayable($0) && $0.utf8.count <= Limits.nameByteCount } ?? true
    }

    /// A name that our user has given; `nil` for none, which is allowed.
    static func check(_ name: String?) throws(CommandError) {
        guard let name else { return }
        guard isDisplayable(name) else { throw .invalidName }
        guard name.utf8.count <= Limits.nameByteCount else {
            throw .nameTooLong(byteCount: name.utf8.count, limit: Limits.nameByteCount)
        }
    }
}
