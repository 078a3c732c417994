import ArgumentParser
import Control
import Glibc
import Messaging

extension CompletionKind {
    /// The conversations of the running node.
    static var conversation: CompletionKind { .custom { words, _, _ in NameCompletion(words).conversations } }
    /// The conversations of the running node, and standing answers to proposals.
    static var conversationAndPolicy: CompletionKind {
        .custom { words, _, prefix in
            let policies = NameCompletion.policies.filter { $0.hasPrefix(prefix) }
            return NameCompletion(words).conversations + (prefix.isEmpty ? [] : policies)
        }
    }
    /// The conversations that the running node remembers as exploded.
    static var explodedConversation: CompletionKind { .custom { words, _, _ in NameCompletion(words).exploded } }
    /// The words of a code, one after the other.
    static var spokenCode: CompletionKind { .custom { _, _, prefix in CodeCompletion.candidates(prefix) } }
    /// The named peers of the running node.
    static var peer: CompletionKind { .custom { words, _, _ in NameCompletion(words).peers } }
}

/// What a shell offers for an argument, from the node that the command line would ask. Nothing, without a word, where no
/// node answers.
struct NameCompletion {
    /// A person waits at a prompt.
    private static let patience = Duration.seconds(2)

    /// The words of the command line as a shell has split them: quotes are still there, nothing is expanded.
    private let words: [String]

    /// Standing answers to proposals.
    static let policies: [String] =
        ["ask", "refuse"]
        + Lifetime.allCases.flatMap { lifetime in
            MailboxConsent.allCases.filter { $0 != .disk || lifetime != .ephemeral }.map {
                Messaging.LifetimePolicy.acceptUpTo(lifetime, mailbox: $0).text
            }
        }

    init(_ words: [String]) { self.words = words }

    var conversations: [String] {
        elements(of: "conversations", ConversationListMethod.self, Nothing()).compactMap { conversation in
            if let alias = conversation["alias"]?.stringValue, Self.isPlain(alias) { return alias }
            return conversation["conversation"]?.stringValue.map(short)
        }
    }

    var exploded: [String] {
        elements(of: "explosions", ExplodeListMethod.self, .init()).compactMap {
            $0["conversation"]?.stringValue.map(short)
        }
    }

    var peers: [String] {
        elements(of: "peers", PeerListMethod.self, Nothing()).compactMap { $0["name"]?.stringValue }.filter(
            Self.isPlain)
    }

    private func elements<Method: ControlMethod>(of list: String, _ method: Method.Type, _ params: Method.Params)
        -> [JSONValue]
    {
        var options = GlobalOptions()
        options.home = home
        guard let path = try? options.resolvedHome(), let client = try? ControlClient(home: path),
            let answer = try? client.call(method, params, timeout: Self.patience)
        else { return [] }
        return answer[list]?.arrayValue ?? []
    }

    /// What `--home` names on the command line.
    private var home: String? {
        var value: String?
        for (index, word) in words.prefix(while: { $0 != "--" }).enumerated() {
            // bash splits at `=`.
            if word == "--home" { value = words.dropFirst(index + 1).first { $0 != "=" } }
            if word.hasPrefix("--home=") { value = String(word.dropFirst("--home=".count)) }
        }
        guard let value, !value.isEmpty else { return nil }
        let path = value.filter { !"'\"\\".contains($0) }
        guard path == "~" || path.hasPrefix("~/"), let user = getenv("HOME") else { return path }
        return String(cString: user) + path.dropFirst()
    }

    /// bash expands what it is offered, commands included, and another member may have chosen the name: only a word that
    /// means itself in every shell is offered.
    static func isPlain(_ word: String) -> Bool {
        guard let first = word.unicodeScalars.first, first != "-" else { return false }
        return word.unicodeScalars.allSatisfy { scalar in
            if scalar.isASCII {
                return scalar.properties.isAlphabetic || ("0"..."9").contains(scalar)
                    || "._-".unicodeScalars.contains(scalar)
            }
            return scalar.properties.isAlphabetic || scalar.properties.numericType != nil
        }
    }
}

/// What a shell offers for a code: after the number and the first letter of a word, the words that begin like this.
enum CodeCompletion {
    static func candidates(_ typed: String) -> [String] {
        let parts = typed.split(separator: "-", omittingEmptySubsequences: false)
        guard (2...3).contains(parts.count), let number = UInt16(parts[0]), SpokenCode.slots.contains(number),
            let last = parts.last, !last.isEmpty, parts.count == 2 || CodeWords.contains(parts[1])
        else { return [] }
        let head = parts.dropLast().joined(separator: "-")
        return CodeWords.words(beginningWith: last.lowercased()).map { "\(head)-\($0)\(parts.count == 2 ? "-" : "")" }
    }
}
