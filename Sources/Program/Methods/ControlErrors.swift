import Control
import Messaging
import NodeRuntime
import Store
import Transport

/// Converts any error of the node to the user's message, hint and kind; the kind determines the exit code.
func controlError(_ error: any Error) -> ControlError { knownError(error) ?? ControlError(.failed, "\(error)") }

/// Converts an error for a client of the node; `nil` for an error of a library, which may name files and addresses.
func knownError(_ error: any Error) -> ControlError? {
    switch error {
    case let error as ControlError: error
    case let error as NodeError: nodeError(error)
    case let error as StoreError: storeError(error)
    case let error as CommandError: commandError(error)
    case let error as HomeFileError: homeFileError(error)
    case let error as ListenFailure: listenFailure(error)
    default: nil
    }
}

private func nodeError(_ error: NodeError) -> ControlError {
    switch error {
    case .command(let error): return commandError(error)
    case .store(let error): return storeError(error)
    case .homeFile(let error):
        return homeFileError(error, "correct the file; the node has not changed it and keeps the previous settings")
    case .invite(let failure): return commandError(failure.explained)
    case .locked: return ControlError(.locked, "the node is locked", hint: "unlock it with `mayfly unlock`")
    case .unknownConversation(let text, let meant):
        let hint = meant.map { "did you mean `\(quoted($0))`?" } ?? "`mayfly conversation list` shows the conversations"
        return ControlError(.notFound, "no conversation `\(text)`", hint: hint)
    case .exploded(let conversation, let name):
        let id = String(conversation.description.prefix(12))
        return ControlError(
            .expired, "conversation \(name.map(quoted) ?? id) has exploded",
            hint: "`mayfly explode status \(id)` shows who did it and when")
    case .joinFailed(let type):
        let words = type.userFacingMessage
        return ControlError(.refused, words.prefix(1).lowercased() + words.dropFirst(), hint: "ask for a new invite")
    case .stopping: return ControlError(.noNode, "the node is stopping")
    }
}

private func commandError(_ error: CommandError) -> ControlError {
    ControlError(error.kind, error.message, hint: error.hint)
}

private func storeError(_ error: StoreError) -> ControlError {
    if case .notAHome(let path) = error { return .noHome(path) }
    let kind: FailureKind =
        switch error.kind {
        case .locked: .locked
        case .missing: .notFound
        case .misuse: .usage
        case .passphrase: if case .passphraseNeeded = error { .locked } else { .failed }
        case .busy, .exists, .permission, .readOnly, .full, .damaged, .resources, .io: .failed
        }
    return ControlError(kind, "\(error)", hint: error.advice)
}

private func homeFileError(_ error: HomeFileError, _ correction: String = "correct the file and start again")
    -> ControlError
{
    if [.missing, .malformed].contains(error.kind), let end = error.path.lastIndex(of: "/") {
        let home = ControlSocket(home: String(error.path[..<end]))
        do throws(ControlError) { try home.checkHome() } catch { return error }
    }
    let hint =
        switch error.kind {
        case .missing: "put the file back, or make a new one with `mayfly init`"
        case .malformed: correction
        case .symbolicLink: "replace it by a regular file"
        case .busy: "try again"
        case .system: "check the home's permissions and its disk"
        }
    return ControlError(.failed, "\(error)", hint: hint)
}

/// - Parameter option: where the user names the listeners.
func listenFailure(_ failure: ListenFailure, _ option: String = "--listen") -> ControlError {
    let (message, hint): (String, String?) =
        switch failure {
        case .addressInUse(let endpoint):
            (
                "tcp://\(endpoint.host):\(endpoint.port) is in use by another process",
                "choose another port with \(option), or stop the other process"
            )
        case .addressNotAvailable(let endpoint):
            ("no interface of this machine has the address \(endpoint.host)", "choose another with \(option)")
        case .notPermitted(let endpoint): ("port \(endpoint.port) requires privileges", "choose one above 1023")
        case .unresolvable(let endpoint): ("`\(endpoint.host)` is not an address to listen on", "write an IP address")
        case .system(let endpoint, let code):
            ("cannot listen on tcp://\(endpoint.host):\(endpoint.port): error \(code)", nil)
        }
    return ControlError(.failed, message, hint: hint)
}
