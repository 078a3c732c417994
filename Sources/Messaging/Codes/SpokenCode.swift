import Cryptography

/// A spoken code: the number of one of the node's open codes and two secret words, such as `7-harvest-lamp`
/// (Join.md, "Spoken codes").
package struct SpokenCode: Hashable, Sendable, CustomStringConvertible {
    package enum Failure: Error, Hashable, Sendable {
        /// It is not a number and two words.
        case malformed
        /// The number is not one of ``SpokenCode/slots``.
        case slot(String)
        case unknownWord(String, nearest: String)

        package var explained: CommandError {
            switch self {
            case .malformed:
                CommandError(.usage, "this is not a code", "a code is a number and two words, such as 7-harvest-lamp")
            case .slot(let number):
                CommandError(
                    .usage, "the number of a code is \(slots.lowerBound) to \(slots.upperBound), not `\(number)`")
            case .unknownWord(let word, let nearest):
                CommandError(
                    .usage, "`\(word)` is not a word of a code; perhaps `\(nearest)`",
                    "nothing was sent; the code is still valid")
            }
        }
    }

    /// Numbers of codes. Which of them are open is not secret.
    package static let slots: ClosedRange<UInt16> = 1...99
    package static let wordCount = 2
    /// Longest text that is parsed.
    private static let characterCount = 64

    package let slot: UInt16
    package let words: [String]

    /// - Precondition: `slot` is in ``slots``, and `words` are two words of the list.
    package init(slot: UInt16, words: [String]) {
        precondition(Self.slots.contains(slot) && words.count == Self.wordCount && words.allSatisfy(CodeWords.contains))
        self.slot = slot
        self.words = words
    }

    /// Draws the words: 22 bits.
    package static func random(slot: UInt16, _ random: inout some RandomNumberGenerator) -> SpokenCode {
        let words = (0..<wordCount).map { _ in CodeWords.all[Int(random.next(upperBound: UInt64(CodeWords.count)))] }
        return SpokenCode(slot: slot, words: words)
    }

    /// Parses what the user heard: upper or lower case, with hyphens or spaces.
    package init(_ text: some StringProtocol) throws(Failure) {
        let parts = Self.parts(text)
        guard let number = parts.first, parts.count == 1 + Self.wordCount, text.utf8.count <= Self.characterCount,
            parts.dropFirst().allSatisfy({ $0.allSatisfy { $0.isASCII && $0.isLetter } })
        else { throw .malformed }
        guard let slot = UInt16(number), Self.slots.contains(slot), number.allSatisfy({ $0.isASCII && $0.isNumber })
        else { throw .slot(number) }
        for word in parts.dropFirst() where !CodeWords.contains(word) {
            throw .unknownWord(word, nearest: CodeWords.nearest(to: word))
        }
        self.init(slot: slot, words: Array(parts.dropFirst()))
    }

    /// Whether the user meant a code: a number, then a word. No invite, and no id of an invitation, has this form.
    package static func isMeant(by text: some StringProtocol) -> Bool {
        let parts = parts(text)
        return text.utf8.count <= characterCount && parts.count >= 2
            && parts[0].allSatisfy { $0.isASCII && $0.isNumber }
            && parts.dropFirst().allSatisfy { $0.allSatisfy { $0.isASCII && $0.isLetter } }
    }

    private static func parts(_ text: some StringProtocol) -> [String] {
        text.prefix(characterCount + 1).lowercased().split { $0 == "-" || $0.isWhitespace }.map(String.init)
    }

    package var description: String { "\(slot)-\(words.joined(separator: "-"))" }

    /// The password (PRS) of CPace.
    var password: SecretBytes {
        var bytes = Array(description.utf8)
        defer { wipe(&bytes) }
        return SecretBytes(copying: bytes)
    }
}
