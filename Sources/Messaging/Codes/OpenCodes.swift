/// The open codes of a node, in memory only (Join.md, "Spoken codes").
package struct OpenCodes {
    /// Names a code while the node runs.
    package struct Number: Hashable, Sendable, Comparable {
        package let value: UInt64

        package init(_ value: UInt64) { self.value = value }

        package static func < (left: Number, right: Number) -> Bool { left.value < right.value }
    }

    package struct Entry {
        package let number: Number
        package let client: ClientID
        package let conversation: ConversationID
        package let expiresAt: Timestamp
        fileprivate var machine: CodeIssuerStateMachine

        package var code: SpokenCode { machine.code }
        /// No attempt was answered yet.
        package var isOpen: Bool { machine.isOpen }
    }

    package struct Action {
        /// `nil` for an attempt at an unknown code.
        package let entry: Entry?
        package let action: CodeIssuerStateMachine.Action
    }

    /// In order of creation.
    package private(set) var entries: [Entry] = []
    private var outcomes: [(number: Number, outcome: CodeOutcome)] = []
    private var next: UInt64 = 1

    package init() {}

    /// - Returns: `nil` when ``Limits/codeCount`` codes are open.
    package mutating func open(
        _ client: ClientID, _ conversation: ConversationID, now: Timestamp, _ random: inout Randomness
    ) -> Entry? {
        guard entries.count < Limits.codeCount else { return nil }
        let taken = Set(entries.map(\.code.slot))
        let free = SpokenCode.slots.filter { !taken.contains($0) }
        guard !free.isEmpty else { return nil }
        let slot = free[Int(random.next(upperBound: UInt64(free.count)))]
        let entry = Entry(
            number: Number(next), client: client, conversation: conversation, expiresAt: now + Limits.codeLifetime,
            machine: CodeIssuerStateMachine(.random(slot: slot, &random)))
        next += 1
        entries.append(entry)
        return entry
    }

    package subscript(number: Number) -> Entry? { entries.first { $0.number == number } }

    /// Whether a connection that names this number may begin an attempt.
    package func isOpen(_ slot: UInt16) -> Bool { entries.contains { $0.code.slot == slot && $0.isOpen } }

    /// The outcome of one of the last ``Limits/codeOutcomeCount`` codes; `nil` for one that is open or forgotten.
    package func outcome(of number: Number) -> CodeOutcome? { outcomes.last { $0.number == number }?.outcome }

    package mutating func receive(
        share: [UInt8], _ greeting: CodeExchange.Greeting, from attempt: CodeAttempt, _ random: inout Randomness
    ) -> [Action] {
        guard let index = entries.firstIndex(where: { $0.code.slot == greeting.slot }) else {
            return [Action(entry: nil, action: .refuse(attempt))]
        }
        return change(index) { $0.receive(share: share, greeting, from: attempt, &random) }
    }

    /// - Parameter greeting: the first message of the attempt.
    package mutating func receive(proof: [UInt8], _ greeting: CodeExchange.Greeting, from attempt: CodeAttempt)
        -> [Action]
    {
        guard let index = entries.firstIndex(where: { $0.code.slot == greeting.slot }) else {
            return [Action(entry: nil, action: .refuse(attempt))]
        }
        return change(index) { $0.receive(proof: proof, from: attempt) }
    }

    package mutating func ended(_ attempt: CodeAttempt) -> [Action] {
        changeAll { machine, _ in machine.ended(attempt) }
    }

    /// - Parameter entry: the code of the invite; it may have ended by now.
    package mutating func made(invite text: [UInt8]?, for entry: Entry) -> [Action] {
        guard let index = entries.firstIndex(where: { $0.number == entry.number }) else {
            return text == nil ? [] : [Action(entry: entry, action: .revokeInvite)]
        }
        return change(index) { $0.made(invite: text) }
    }

    package mutating func end(_ reason: (Entry) -> CodeOutcome?) -> [Action] {
        changeAll { machine, entry in reason(entry).map { machine.end($0) } ?? [] }
    }

    package var nextDeadline: Timestamp? { entries.map(\.expiresAt).min() }

    package mutating func advance(now: Timestamp) -> [Action] {
        changeAll { machine, entry in entry.expiresAt <= now ? machine.expire() : [] }
    }

    private mutating func changeAll(_ event: (inout CodeIssuerStateMachine, Entry) -> [CodeIssuerStateMachine.Action])
        -> [Action]
    {
        var actions: [Action] = []
        for number in entries.map(\.number) {
            guard let index = entries.firstIndex(where: { $0.number == number }) else { continue }
            let entry = entries[index]
            actions += change(index) { event(&$0, entry) }
        }
        return actions
    }

    private mutating func change(
        _ index: Int, _ event: (inout CodeIssuerStateMachine) -> [CodeIssuerStateMachine.Action]
    ) -> [Action] {
        let actions = event(&entries[index].machine)
        let entry = entries[index]
        if let outcome = entry.machine.outcome {
            entries.remove(at: index)
            outcomes.append((entry.number, outcome))
            if outcomes.count > Limits.codeOutcomeCount { outcomes.removeFirst() }
        }
        return actions.map { Action(entry: entry, action: $0) }
    }
}
