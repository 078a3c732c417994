import ArgumentParser
import Control
import Glibc

struct DoctorCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Look for what is wrong here.",
        discussion: """
            Checks the home directory, the control socket, swap and the file system, and asks the node what it knows. \
            The exit code is 1 when a check fails.

            Example:
              mayfly doctor --json | jq 'select(.state != "ok")'
            """
    )

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let home = try global.resolvedHome()
        let checks = LocalChecks(home: home).all + nodeChecks()
        for check in checks {
            if terminal.json { terminal.result(try JSONValue(encoding: check)) }
        }
        if !terminal.json {
            terminal.table(
                ["CHECK", "STATE", "FOUND"],
                checks.map { check in
                    let hint = check.hint.map { "; \(safe($0))" } ?? ""
                    return [safe(check.name), check.state.rawValue, safe(check.message) + hint]
                }
            )
        }
        if checks.contains(where: { $0.state == .failed }) { throw ExitCode(FailureKind.failed.exitCode) }
    }

    private func nodeChecks() -> [HealthCheck] {
        do {
            let value = try connect().call(StatusMethod.self, Nothing(), timeout: .seconds(5))
            let status = try understand(value, as: NodeStatus.self)
            var checks = [
                HealthCheck(name: "node", state: .ok, message: "version \(status.version) is running")
            ]
            if status.version != Mayfly.version {
                checks.append(
                    HealthCheck(
                        name: "version",
                        state: .warning,
                        message: "the node is \(status.version), this command is \(Mayfly.version)",
                        hint: "restart the node"
                    )
                )
            }
            checks.append(
                HealthCheck(
                    name: "erasure",
                    state: status.erasure == "best-effort" ? .warning : .ok,
                    message: "destroying is \(status.erasure) here"
                )
            )
            if status.locked {
                checks.append(
                    HealthCheck(
                        name: "storage",
                        state: .warning,
                        message: "the storage is locked",
                        hint: "open it with `mayfly unlock`"
                    )
                )
            }
            return checks + (status.checks ?? [])
        } catch let error as ControlError {
            let state: CheckState = error.kind == .noNode ? .warning : .failed
            return [HealthCheck(name: "node", state: state, message: error.message, hint: error.hint)]
        } catch {
            return [HealthCheck(name: "node", state: .failed, message: "the node cannot be asked")]
        }
    }
}
