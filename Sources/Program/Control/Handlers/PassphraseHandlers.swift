import Control
import Crypto
import NIOCore
import NodeRuntime
import Store

enum PassphraseHandlers {
    static func add(to router: inout NodeRouter) {
        router.later(Methods.passphraseChange) { node, call in
            let params = call.params
            return try change(.change(from: params.passphrase, to: params.newPassphrase), node)
        }
        router.later(Methods.passphraseSet) { node, call in try change(.set(call.params.newPassphrase), node) }
        router.later(Methods.passphraseDrop) { node, call in try change(.drop(call.params.passphrase), node) }
    }

    private static func change(_ change: PassphraseChange, _ node: isolated Node) throws -> EventLoopFuture<
        ProtectionResult
    > {
        let state = node.status()
        try change.check(against: state.protection)
        let old: SecretBytes? = change.old.map { SecretBytes(copying: $0.utf8) }
        let new: SecretBytes? = change.new.map { SecretBytes(copying: $0.utf8) }
        let result = ProtectionResult(
            protection: change.new == nil ? "key file" : "passphrase", erasure: state.erasure.erasure.rawValue)
        return node.changingProtection(from: old, to: new).map { result }
    }
}

enum PassphraseChange {
    case change(from: String, to: String)
    case set(String)
    case drop(String)

    var old: String? {
        switch self {
        case .change(let old, _), .drop(let old): old
        case .set: nil
        }
    }

    var new: String? {
        switch self {
        case .change(_, let new), .set(let new): new
        case .drop: nil
        }
    }

    /// - Throws: when the change does not fit the present protection, or the new passphrase is empty.
    func check(against protection: Protection) throws(ControlError) {
        switch (self, protection) {
        case (.set, .passphrase):
            throw ControlError(
                .failed, "this home has a passphrase already", hint: "replace it with `mayfly passphrase change`")
        case (.change, .keyFile), (.drop, .keyFile):
            throw ControlError(
                .failed, "this home has a key file and no passphrase", hint: "give it one with `mayfly passphrase set`")
        case (.set, .keyFile), (.change, .passphrase), (.drop, .passphrase): break
        }
        for (field, passphrase) in [("passphrase", old), ("newPassphrase", new)] {
            guard let passphrase else { continue }
            if passphrase.isEmpty { throw ControlError(.usage, "the passphrase is empty", field: field) }
            guard passphrase.utf8.count <= Passphrase.byteLimit else {
                throw ControlError(.usage, "the passphrase is longer than \(Passphrase.byteLimit) bytes", field: field)
            }
        }
        if let old, old == new {
            throw ControlError(.usage, "the new passphrase is the old one", field: "newPassphrase")
        }
    }
}
