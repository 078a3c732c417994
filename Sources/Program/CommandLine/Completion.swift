import ArgumentParser
import Control
import Glibc
import Messaging

extension CompletionKind {
    static var conversation: CompletionKind { .custom { words, _, _ in NameCompletion(words).conversations } }
    static var conversationAndPolicy: CompletionKind {
        .custom { words, _, prefix in
            let policies = NameCompletion.policies.filter { $0.hasPrefix(prefix) }
            return NameCompletion(words).conversations + (prefix.isEmpty ? [] : policies)
        }
    }
    static var explodedConversation: CompletionKind { .custom { words, _, _ in NameCompletion(words).exploded } }
    static var spokenCode: CompletionKind { .custom { _, _, prefix in CodeCompletion.candidates(prefix) } }
    static var peer: CompletionKind { .custom { words, _, _ in NameCompletion(words).peers } }
}

/// Shell completions from the node that the command line addresses. Empty, without an error, when no node answers.
struct NameCompletion {
    /// Short, because the user waits at a prompt.
    private static let patience = Duration.seconds(2)

    /// The words of the command line as the shell split them: still quoted, not expanded.
    private let words: [String]

    static let policies: [String] =
        ["ask", "refuse"]
        + Lifetime.allCases.flatMap { lifetime in
            MailboxConsent.allCases.filter { $0 != .disk || lifetime != .ephemeral }.map {
                Messaging.LifetimePolicy.acceptUpTo(lifetime, mailbox: $0).text
            }
        }

    init(_ words: [String]) { self.words = words }

    var conversations: [String] {
        elements(of: "conversations", ConversationMethods.list, .init(), from: \.from).compactMap { conversation in
            if let alias = conversation["alias"]?.stringValue, Self.isPlain(alias) { return alias }
            return conversation["conversation"]?.stringValue.map(short)
        }
    }

    var exploded: [String] {
        elements(of: "explosions", ExplodeMethods.list, .init(), from: \.from).compactMap {
            $0["conversation"]?.stringValue.map(short)
        }
    }

    var peers: [String] {
        elements(of: "peers", PeerMethods.list, Nothing()).compactMap { $0["name"]?.stringValue }.filter(Self.isPlain)
    }

    private func elements<Method: ControlMethod>(
        of list: String, _ method: Method, _ params: Method.Params, from: WritableKeyPath<Method.Params, String?>? = nil
    ) -> [JSONValue] {
        var options = GlobalOptions()
        options.home = home
        var elements: [JSONValue] = []
        guard let path = try? options.resolvedHome(), let client = try? ControlClient(home: path) else { return [] }
        try? client.visitList(method, params, from: from, list, timeout: Self.patience) { elements.append($0) }
        return elements
    }

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

    /// bash expands completions, commands included, and another member may have chosen the name. Only words without a
    /// special meaning in any shell are offered.
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

/// Completions of a spoken code: after the number and a letter, the words that start with it.
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
