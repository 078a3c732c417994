import ArgumentParser
import Control
import Glibc

struct GlobalOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The node's directory (or MAYFLY_HOME).", valueName: "dir"), completion: .directory)
    var home: String?

    @Flag(help: "One JSON object a line on standard output, errors included.") var json = false

    /// The home of the packaged service, owned by its user.
    private static let serviceHome = "/var/lib/mayfly"

    /// The node's home: `--home`, MAYFLY_HOME, /var/lib/mayfly for its owner, $XDG_STATE_HOME/mayfly,
    /// ~/.local/state/mayfly.
    func resolvedHome() throws -> String {
        if let home {
            // Empty from an unset variable: the default home could belong to another node.
            guard !home.isEmpty else {
                throw ControlError(.usage, "--home is empty", hint: "name a directory, or leave the option out")
            }
            return Self.absolute(home)
        }
        if let home = try environment("MAYFLY_HOME") { return Self.absolute(home) }
        var status = stat()
        if geteuid() != 0, stat(Self.serviceHome, &status) == 0, status.st_uid == geteuid() { return Self.serviceHome }
        // The XDG specification says to ignore a relative path.
        if let state = try environment("XDG_STATE_HOME"), state.hasPrefix("/") { return "\(state)/mayfly" }
        if let user = try environment("HOME") { return "\(user)/.local/state/mayfly" }
        throw ControlError(.usage, "no home directory is known", hint: "give --home DIR or set MAYFLY_HOME")
    }

    private static func absolute(_ path: String) -> String {
        guard !path.hasPrefix("/"), let working = getcwd(nil, 0) else { return path }
        defer { free(working) }
        return "\(String(cString: working))/\(path)"
    }
}

/// `nil` for an unset or empty variable.
func environment(_ name: String) throws(ControlError) -> String? {
    guard let value = getenv(name), value.pointee != 0 else { return nil }
    guard let text = String(validatingCString: value) else {
        throw ControlError(.usage, "\(name) is not UTF-8 text", hint: "set it to a path that is")
    }
    return text
}
