import ArgumentParser
import Control
import Messaging

extension InviteCommand.Create {
    /// The node ends the code by itself before this timeout, which covers a node that does not answer.
    private static let patience = Duration.seconds(5 * 60 + 30)

    func performCode(_ terminal: Terminal) throws {
        // One connection for both calls, because the node revokes the code when the connection closes.
        let client = try connect()
        let value = try client.call(Methods.inviteCode, .init(conversation: conversation, wait: !noWait))
        let opened = try understand(value, as: InviteCodeResult.self)
        if terminal.json { terminal.result(value) } else { show(opened, terminal) }
        if noWait { return }
        let answer = try client.call(Methods.inviteOutcome, .init(number: opened.number), timeout: Self.patience)
        let outcome = try understand(answer, as: InviteOutcomeResult.self).outcome
        if terminal.json {
            // The result describes the failure; the exit code gives its kind.
            terminal.result(answer, exitCode: outcome.failure?.kind.exitCode ?? 0)
            if let failure = outcome.failure { throw ExitCode(failure.kind.exitCode) }
            return
        }
        if let failure = outcome.failure { throw failure }
        terminal.note("the code was used: the other side has the invitation")
    }

    private func show(_ opened: InviteCodeResult, _ terminal: Terminal) {
        let code = safe(opened.code)
        terminal.result(code)
        terminal.note("to join, on this network:  mayfly join \(code)")
        if let endpoint = opened.endpoints.lazy.compactMap({ Endpoint($0) }).first(where: { $0.relay == nil }) {
            terminal.note("from elsewhere:            mayfly join \(code) --at \(EndpointOption.place(of: endpoint))")
        }
        terminal.note("expires:  \(shown(opened.expiresAt, now: wallClock())), or with the first wrong guess")
    }
}

extension CodeOutcome {
    /// Why the invitation was not delivered; `nil` if it was.
    fileprivate var failure: ControlError? {
        let again = "make a new code: mayfly invite create C --code"
        switch self {
        case .taken: return nil
        case .wrongGuess: return ControlError(.refused, "a wrong code was entered: the code is void", hint: again)
        case .unproven:
            return ControlError(
                .refused, "an attempt did not prove knowledge of the code: the code is void", hint: again)
        case .expired: return ControlError(.expired, "the code was not used in time: the code is void", hint: again)
        case .revoked: return ControlError(.failed, "the code was revoked")
        case .locked: return ControlError(.locked, "the node or the conversation was locked: the code is void")
        case .gone: return ControlError(.failed, "the conversation is gone, or the node has stopped: the code is void")
        case .failed:
            return ControlError(.failed, "the code was used, but the invitation could not be delivered", hint: again)
        }
    }
}
