extension Unicode.Scalar {
    /// Symbols and letters without ink; Unicode has no property for them.
    private static let blanks: Set<Unicode.Scalar> = ["\u{2800}", "\u{13441}", "\u{13442}", "\u{16FE4}", "\u{1D159}"]

    /// A visible character (SignedValues.md, "Description of a member").
    package var isVisible: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .spaceSeparator: false
        default:
            !properties.isDefaultIgnorableCodePoint && !properties.isNoncharacterCodePoint
                && !Self.blanks.contains(self)
        }
    }
}

/// Names of conversations and members: text for people, never an identifier.
enum DisplayName {
    /// At least one visible character, no control characters, any length.
    static func isDisplayable(_ text: String) -> Bool {
        text.unicodeScalars.contains(where: \.isVisible)
            && text.unicodeScalars.allSatisfy { $0.properties.generalCategory != .control }
    }

    /// Checks a name from a member; `nil` is allowed.
    static func isValid(_ name: String?) -> Bool {
        name.map { isDisplayable($0) && $0.utf8.count <= Limits.nameByteCount } ?? true
    }

    /// The name in a foreign invite or invitation; `nil` without a valid one.
    static func kept(_ name: String?) -> String? { isValid(name) ? name : nil }

    /// Checks a name from our user; `nil` is allowed.
    static func check(_ name: String?) throws(CommandError) {
        guard let name else { return }
        guard isDisplayable(name) else { throw .invalidName }
        guard name.utf8.count <= Limits.nameByteCount else {
            throw .tooLong("name", name.utf8.count, limit: Limits.nameByteCount)
        }
    }
}
