import Control

// The three commands that need the node itself and its store. This file is where they are linked in.

/// What `mayfly init` was given.
struct SetupOptions: Sendable {
    let home: String
    let name: String?
    /// `tcp://host:port`; empty for the default.
    let listen: [String]
    /// Endpoints to put into the contact card; empty for those of `listen`.
    let advertise: [String]
    /// From `--passphrase-file`, MAYFLY_PASSPHRASE_FILE or the systemd credential; `nil` for a key file.
    let passphraseFile: String?
    let json: Bool
}

/// What `mayfly run` was given.
struct DaemonOptions: Sendable {
    let home: String
    /// Replaces the configured endpoints when not empty.
    let listen: [String]
    let passphraseFile: String?
    /// How long a lost link counts as the same session; `nil` for the configured value.
    let sessionGrace: Duration?
    let logLevel: String
    let json: Bool
}

/// What `mayfly reap` was given.
struct ReapOptions: Sendable {
    let home: String
    let json: Bool
}

private let notLinked = ControlError(.failed, "not linked yet")

enum NodeSetup {
    /// - Returns: `{home, listen, contactCard, protection}`.
    static func initialise(_ options: SetupOptions) throws -> JSONValue { throw notLinked }
}

enum Daemon {
    /// Serves until SIGTERM or `stop`; prints the ready line itself.
    static func run(_ options: DaemonOptions) async throws { throw notLinked }
}

enum Reaping {
    /// Destroys everything due, with no node running and without a passphrase.
    /// - Returns: `{ok}` and what was done.
    static func run(_ options: ReapOptions) throws -> JSONValue { throw notLinked }
}

enum InviteInspection {
    /// Reads an invitation with no node running.
    static func inspect(slug: String) throws -> Invite { throw notLinked }
}
