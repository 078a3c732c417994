/// Comparison of displayed names, and the check for names that cannot be confused.
package enum ShownName {
    package static func onOneBlank(_ name: String) -> String {
        name.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }

    /// The name without case, white space and invisible characters. Ordinary names that read alike compare equal, since
    /// strings compare by canonical equivalence.
    package static func folded(_ name: String) -> String {
        var scalars = String.UnicodeScalarView()
        for scalar in name.unicodeScalars {
            if scalar.properties.isWhitespace || scalar.properties.isDefaultIgnorableCodePoint { continue }
            scalars.append(scalar)
        }
        // Both conversions, since some letters exist in one case only: `ß` becomes `ss`.
        return String(scalars).uppercased().lowercased()
    }

    /// Whether a name is visible and has single spaces and no compatibility characters, such as fullwidth letters.
    /// Compatibility characters would need NFKC first.
    package static func isOrdinary(_ name: String) -> Bool {
        let folded = folded(name)
        return !folded.isEmpty && name == onOneBlank(name)
            && !folded.unicodeScalars.contains(where: \.properties.changesWhenNFKCCaseFolded)
    }
}
