import ArgumentParser
import Control

/// `EVENT[:key=value[,key=value…]]`
struct EventCondition: ExpressibleByArgument, Sendable {
    let text: String
    let event: EventKind
    private let values: [(key: String, value: String)]

    init?(argument: String) {
        let parts = argument.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard let event = EventKind(rawValue: String(parts[0])) else { return nil }
        var values: [(key: String, value: String)] = []
        if parts.count == 2 {
            for pair in parts[1].split(separator: ",", omittingEmptySubsequences: false) {
                let words = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
                if words.count == 2, !words[0].isEmpty, words[0].allSatisfy(\.isLetter) {
                    values.append((words[0], words[1]))
                } else if let last = values.last {
                    // Without a `key=` after it, a comma belongs to the value.
                    values[values.count - 1].value = "\(last.value),\(pair)"
                } else {
                    return nil
                }
            }
            for index in values.indices where Self.isID(values[index].key, of: event) {
                values[index].value = values[index].value.lowercased()
            }
        }
        self.text = argument
        self.event = event
        self.values = values
    }

    static var allValueStrings: [String] { EventKind.allCases.map(\.rawValue) }

    func check() throws(ControlError) {
        for (key, value) in values {
            let fields = EventKind.commonFields + event.fields
            guard fields.contains(key) else {
                throw ControlError(
                    .usage, "`\(event.rawValue)` has no field `\(key)`",
                    hint: "it has \(fields.joined(separator: ", "))")
            }
            let possible = EventKind.values(of: key)
            guard possible.isEmpty || possible.contains(value) else {
                throw ControlError(
                    .usage, "`\(key)` is never `\(value)`", hint: "it is one of \(possible.joined(separator: ", "))")
            }
            if Self.isID(key, of: event) { try Self.checkID(key, value) }
        }
    }

    private static func checkID(_ key: String, _ value: String) throws(ControlError) {
        let digits = Set("0123456789abcdef-".utf8)
        guard value.utf8.allSatisfy(digits.contains) else {
            let hint =
                switch key {
                case "conversation": "give a name before: `mayfly watch NAME --until …`"
                case "member": "see `mayfly conversation members`; names are in `from` and `profile`"
                default: "give the beginning of an id"
                }
            throw ControlError(.usage, "`\(key)` is an id, and `\(value)` is none", hint: hint)
        }
        guard value.utf8.count >= idPrefixByteCount else {
            throw ControlError(
                .usage, "`\(value)` is too short for the beginning of an id",
                hint: "give at least \(idPrefixByteCount) characters of it")
        }
    }

    func matches(_ candidate: JSONValue) -> Bool {
        candidate["event"]?.stringValue == event.rawValue && agrees(with: candidate) { _ in true }
    }

    func names(_ key: String) -> Bool { values.contains { $0.key == key } }

    /// Whether the values of these keys equal the candidate's. The candidate may be an event of another kind.
    func agrees(with candidate: JSONValue, in keys: (String) -> Bool) -> Bool {
        values.filter { keys($0.key) }.allSatisfy { key, value in
            guard let actual = candidate[key] else { return false }
            guard let text = actual.stringValue else { return actual.text == value }
            guard Self.isID(key, of: event), value.utf8.count >= Self.idPrefixByteCount else { return text == value }
            return text.hasPrefix(value)
        }
    }

    private static let idPrefixByteCount = 4

    private static func isID(_ key: String, of event: EventKind) -> Bool {
        switch key {
        // In `joinFailed` the field holds a text.
        case "message": event != .joinFailed
        case "conversation", "inbox", "member", "join", "proposal", "agreement", "replyTo", "reactsTo": true
        default: false
        }
    }
}

/// `EVENT[,EVENT…]`
struct EventKinds: ExpressibleByArgument, Sendable {
    let kinds: [EventKind]

    init?(argument: String) {
        var kinds: [EventKind] = []
        for name in argument.split(separator: ",", omittingEmptySubsequences: false) {
            guard let kind = EventKind(rawValue: String(name)) else { return nil }
            kinds.append(kind)
        }
        self.kinds = kinds
    }

    static var allValueStrings: [String] { EventKind.allCases.map(\.rawValue) }

    func contains(_ kind: EventKind) -> Bool { kinds.contains(kind) }
}

/// Follows the proposal whose agreement a command waits for.
struct AwaitedAgreement {
    static let kinds: [EventKind] = [.lifetimeProposed, .lifetimeAgreed, .lifetimeRejected]

    private let condition: EventCondition
    /// The newest proposal; `nil` when it was made before the command started.
    private var proposal: JSONValue?
    private(set) var rejection: JSONValue?

    /// - Returns: `nil` for other conditions, and without a conversation: any other conversation may still reach an
    ///   agreement.
    init?(_ condition: EventCondition?, in conversation: String?) {
        guard let condition, condition.event == .lifetimeAgreed, conversation != nil || condition.names("conversation")
        else { return nil }
        self.condition = condition
    }

    mutating func happened(_ event: JSONValue) {
        guard let kind = event["event"]?.stringValue.flatMap(EventKind.init(rawValue:)),
            condition.agrees(with: event, in: { EventKind.commonFields.contains($0) })
        else { return }
        switch kind {
        case .lifetimeProposed:
            proposal = event
            rejection = nil
        case .lifetimeAgreed: rejection = nil
        case .lifetimeRejected:
            // Ignores the rejection of another proposal, and of a proposal whose terms do not match the condition.
            if let proposal, proposal["proposal"] != event["proposal"] { return }
            if let proposal, !condition.agrees(with: proposal, in: LifetimeTermsRecord.fieldNames.contains) { return }
            rejection = event
        default: break
        }
    }
}
