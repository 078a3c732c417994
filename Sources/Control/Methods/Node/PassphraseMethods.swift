package enum PassphraseMethods {
    package static let all: [any ControlMethod.Type] = [
        PassphraseChangeMethod.self, PassphraseSetMethod.self, PassphraseDropMethod.self,
    ]
}

package struct ProtectionResult: JSONRecord, Hashable, Sendable {
    /// `passphrase` or `key file`, as in `status`.
    package var protection = ""
    /// Erasure of the old protection on this disk: `in-place`, `best-effort` or `ram`.
    package var erasure = ""

    package init(protection: String, erasure: String) {
        self.protection = protection
        self.erasure = erasure
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("protection", &protection)
        try fields.field("erasure", &erasure)
    }
}

package enum PassphraseChangeMethod: ControlMethod {
    package static let name = "passphrase.change"
    package static let summary = "Replaces the passphrase; the old one opens nothing any more."
    package typealias Result = ProtectionResult

    /// Changes run one at a time, each with a slow key derivation.
    package static func waits(_ params: Params) -> Bool { true }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var passphrase = ""
        package var newPassphrase = ""

        package init(passphrase: String, newPassphrase: String) {
            self.passphrase = passphrase
            self.newPassphrase = newPassphrase
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("passphrase", &passphrase)
            try fields.field("newPassphrase", &newPassphrase)
        }
    }
}

package enum PassphraseSetMethod: ControlMethod {
    package static let name = "passphrase.set"
    package static let summary = "Protects a home that has a key file with a passphrase, and destroys the key file."
    package typealias Result = ProtectionResult

    /// Changes run one at a time, each with a slow key derivation.
    package static func waits(_ params: Params) -> Bool { true }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var newPassphrase = ""

        package init(newPassphrase: String) { self.newPassphrase = newPassphrase }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("newPassphrase", &newPassphrase)
        }
    }
}

package enum PassphraseDropMethod: ControlMethod {
    package static let name = "passphrase.drop"
    package static let summary = "Puts a key file in place of the passphrase."
    package typealias Result = ProtectionResult

    /// Changes run one at a time, each with a slow key derivation.
    package static func waits(_ params: Params) -> Bool { true }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var passphrase = ""

        package init(passphrase: String) { self.passphrase = passphrase }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("passphrase", &passphrase)
        }
    }
}
