import ArgumentParser
import Control
import Glibc

struct DoctorCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor", abstract: "Check the home, the configuration and the node for problems.",
        discussion: """
            Checks the home and the directories above it: keystore, clock mark, configuration, peers and hooks. Also \
            checks ports, swap, core dumps and limits, and queries the node. Works with and without a running node. The \
            exit code is 1 if a check fails; a warning is not a failure.

            Example:
              mayfly doctor --json | jq 'select(.state != "ok")'
            """)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let home = try global.resolvedHome()
        let (nodeChecks, running) = askNode()
        let checks = (LocalChecks(home: home, running: running).all + nodeChecks).map { check in
            var check = check
            check.hint = check.hint.map { naming(home: global.home, in: $0) }
            return check
        }
        let code = checks.contains { $0.state == .failed } ? FailureKind.failed.exitCode : 0
        for check in checks { if terminal.json { terminal.result(JSONValue(of: check), exitCode: code) } }
        if !terminal.json {
            terminal.table(
                ["CHECK", "STATE", "FOUND"],
                checks.map { check in
                    let hint = check.hint.map { "; \(safe($0))" } ?? ""
                    return [safe(check.name), check.state.rawValue, safe(check.message) + hint]
                }, exitCode: code)
        }
        if code != 0 { throw ExitCode(code) }
    }

    private func askNode() -> ([HealthCheck], NodeStatus?) {
        do {
            let value = try connect().call(Methods.status, Nothing(), timeout: .seconds(5))
            let status = try understand(value, as: NodeStatus.self)
            var checks = [HealthCheck.ok("node", "version \(status.version) is running")]
            if status.version != ProgramVersion.text {
                checks.append(
                    .warning(
                        "version", "the node is \(status.version), this command is \(ProgramVersion.text)",
                        "restart the node"))
            }
            if status.locked {
                checks.append(.warning("storage", "the storage is locked", "open it with `mayfly unlock`"))
            }
            if let hooks = status.hooks, hooks.failed + hooks.dropped > 0 {
                checks.append(
                    .warning(
                        "hooks", "\(hooks.failed) failed, \(hooks.dropped) dropped since the start",
                        "see the node's log"))
            }
            return (checks + (status.checks ?? []), status)
        } catch let error as ControlError {
            let state: CheckState = error.kind == .noNode ? .warning : .failed
            return ([HealthCheck(name: "node", state: state, message: error.message, hint: error.hint)], nil)
        } catch { return ([HealthCheck.failed("node", "the node cannot be queried")], nil) }
    }
}
