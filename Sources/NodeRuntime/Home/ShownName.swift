/// When two names that people read are the same to them, and which names are written so that nobody misreads them.
package enum ShownName {
    /// The name with one blank between its words.
    package static func onOneBlank(_ name: String) -> String {
        name.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }

    /// The name without case, blanks, and what cannot be seen. Two names that read alike are equal then, if both are
    /// ordinary: strings are compared by canonical equivalence.
    package static func folded(_ name: String) -> String {
        var scalars = String.UnicodeScalarView()
        for scalar in name.unicodeScalars {
            if scalar.properties.isWhitespace || scalar.properties.isDefaultIgnorableCodePoint { continue }
            scalars.append(scalar)
        }
        // Both ways, since some letters have one case only: `ß` is `ss` then.
        return String(scalars).uppercased().lowercased()
    }

    /// Whether a name has something to see, no wide gaps, and no second way to write other characters, such as fullwidth
    /// letters: those would have to be NFKC first.
    package static func isOrdinary(_ name: String) -> Bool {
        let folded = folded(name)
        return !folded.isEmpty && name == onOneBlank(name)
            && !folded.unicodeScalars.contains(where: \.properties.changesWhenNFKCCaseFolded)
    }
}
