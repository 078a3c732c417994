import Control

enum PassphraseMethods {
    static let all: [any ControlMethod.Type] = [
        PassphraseChangeMethod.self, PassphraseSetMethod.self, PassphraseDropMethod.self,
    ]
}

struct ProtectionResult: CodableRecord {
    /// `passphrase` or `key file`, as in `status`.
    var protection = ""
    /// Erasure of the old protection on this disk: `in-place`, `best-effort` or `ram`.
    var erasure = ""
}

enum PassphraseChangeMethod: ControlMethod {
    static let name = "passphrase.change"
    static let summary = "Replaces the passphrase; the old one no longer opens the home."
    typealias Result = ProtectionResult

    /// Changes run one at a time, each with a slow key derivation.
    static func waits(_ params: Params) -> Bool { true }

    struct Params: CodableRecord {
        var passphrase = ""
        var newPassphrase = ""
    }
}

enum PassphraseSetMethod: ControlMethod {
    static let name = "passphrase.set"
    static let summary = "Replaces the key file with a passphrase, and destroys the key file."
    typealias Result = ProtectionResult

    /// Changes run one at a time, each with a slow key derivation.
    static func waits(_ params: Params) -> Bool { true }

    struct Params: CodableRecord { var newPassphrase = "" }
}

enum PassphraseDropMethod: ControlMethod {
    static let name = "passphrase.drop"
    static let summary = "Replaces the passphrase with a key file."
    typealias Result = ProtectionResult

    /// Changes run one at a time, each with a slow key derivation.
    static func waits(_ params: Params) -> Bool { true }

    struct Params: CodableRecord { var passphrase = "" }
}
