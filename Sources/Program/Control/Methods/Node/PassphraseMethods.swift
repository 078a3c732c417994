import Control

struct ProtectionResult: CodableRecord {
    /// `passphrase` or `key file`, as in `status`.
    var protection = ""
    /// Erasure of the old protection on this disk: `in-place`, `best-effort` or `ram`.
    var erasure = ""
}

struct PassphraseChangeParams: CodableRecord {
    var passphrase = ""
    var newPassphrase = ""
}

struct PassphraseSetParams: CodableRecord { var newPassphrase = "" }

struct PassphraseDropParams: CodableRecord { var passphrase = "" }
