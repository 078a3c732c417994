import Glibc

/// An error of the store in words for users: ``description`` says what and where, ``advice`` says what to do.
package enum StoreError: Error, Equatable {
    case wrongPassphrase
    case passphraseNeeded
    case locked
    /// Another process holds the home's lock. `pid` is the process number in the lock file, if there is one.
    case homeInUse(pid: Int32?)
    case notAHome(path: String)
    case alreadyInitialised(path: String)
    /// The directory for a new home holds foreign files.
    case notEmpty(path: String)
    case unsafeMode(path: String, mode: UInt32, expected: UInt32)
    case foreignOwner(path: String, owner: UInt32)
    case symlink(path: String)
    case readOnly(path: String)
    case full(path: String)
    /// Damage in a part that the rest of the home does not need.
    case damaged(what: String)
    /// Both copies of the keystore, or the key file, are damaged. Nothing in the home opens without them.
    case keysDamaged(path: String)
    case missing(path: String)
    /// The stored Argon2id parameters are below the floor: the keystore may have been weakened on purpose.
    case weakKeystore(iterations: UInt64, memoryByteCount: UInt64)
    case outOfMemory(byteCount: Int)
    case overdueOnReadOnly(path: String)
    case unknownRow
    case unknownMessage
    case duplicateMessage
    case unknownTombstone
    /// `limit` in bytes.
    case tooLarge(limit: Int)
    /// An identifier that is not 16 bytes long, or a time outside `Tier.times`.
    case invalidArgument(String)
    case io(path: String, operation: String, code: Int32)
    case newerFormat(path: String)

    package enum Kind: String, Sendable {
        case passphrase, locked, busy, missing, exists, permission, readOnly, full, damaged, resources, misuse, io
    }

    init(_ error: SystemError, path: String) {
        self =
            switch error.code {
            case ENOSPC, EDQUOT: .full(path: path)
            case EROFS: .readOnly(path: path)
            default: .io(path: path, operation: error.operation, code: error.code)
            }
    }

    package var kind: Kind {
        switch self {
        case .wrongPassphrase, .passphraseNeeded: .passphrase
        case .locked: .locked
        case .homeInUse: .busy
        case .notAHome, .unknownRow, .unknownMessage, .unknownTombstone: .missing
        case .alreadyInitialised, .notEmpty, .duplicateMessage: .exists
        case .unsafeMode, .foreignOwner, .symlink: .permission
        case .readOnly, .overdueOnReadOnly: .readOnly
        case .full: .full
        case .damaged, .keysDamaged, .missing, .weakKeystore, .newerFormat: .damaged
        case .outOfMemory: .resources
        case .tooLarge, .invalidArgument: .misuse
        case .io: .io
        }
    }
}

extension StoreError: CustomStringConvertible {
    package var description: String {
        switch self {
        case .wrongPassphrase: "the passphrase does not open the keystore"
        case .passphraseNeeded: "this home is protected by a passphrase"
        case .locked: "the store is locked"
        case .homeInUse(let pid?): "the home is in use by process \(pid)"
        case .homeInUse(nil): "the home is in use by another process"
        case .notAHome(let path): "\(path) is not a Mayfly home"
        case .alreadyInitialised(let path): "\(path) is a Mayfly home already"
        case .notEmpty(let path): "\(path) is not empty"
        case .unsafeMode(let path, let mode, let expected):
            "\(path) has mode \(octal(mode)), which gives other users access; expected \(octal(expected))"
        case .foreignOwner(let path, let owner): "\(path) belongs to user \(owner)"
        case .symlink(let path): "\(path) is a symbolic link"
        case .readOnly(let path): "\(path) is on a read-only file system"
        case .full(let path): "no space left for \(path)"
        case .damaged(let what): "\(what) is damaged"
        case .keysDamaged(let path): "\(path) is damaged, and without it nothing in this home can be read"
        case .missing(let path): "\(path) is missing"
        case .weakKeystore(let iterations, let memory):
            "the keystore asks for Argon2id with \(iterations) passes over \(memory / 1_048_576) MiB, below the floor"
        case .outOfMemory(let byteCount): "\(byteCount / 1_048_576) MiB for Argon2id are not available"
        case .overdueOnReadOnly(let path): "\(path) is read-only and holds data that is overdue for destruction"
        case .unknownRow: "no such inbox in the store"
        case .unknownMessage: "no such message in the store"
        case .duplicateMessage: "a message with this identifier is stored already"
        case .unknownTombstone: "no such tombstone in the store"
        case .tooLarge(let limit): "more than \(limit) bytes"
        case .invalidArgument(let what): "invalid \(what)"
        case .io(let path, let operation, let code): "\(path): \(operation): \(String(cString: strerror(code)))"
        case .newerFormat(let path): "\(path) was made by a later version of Mayfly"
        }
    }

    package var advice: String {
        switch self {
        case .wrongPassphrase: "try again; there is no way to recover a lost passphrase"
        case .passphraseNeeded: "give the passphrase"
        case .locked: "unlock the store first"
        case .homeInUse(let pid?): "use the running node, or stop process \(pid)"
        case .homeInUse(nil): "use the running node, or stop it"
        case .notAHome: "make a home with `mayfly init`, or name another directory"
        case .alreadyInitialised: "use it as it is, or name another directory"
        case .notEmpty: "name a directory that is empty or does not exist"
        case .unsafeMode(let path, _, let expected): "chmod \(octal(expected)) \(path)"
        case .foreignOwner(let path, _): "chown \(path) to the user who runs the node, or name another directory"
        case .symlink: "use the file or the directory itself, not a link to it"
        case .readOnly(let path): "make \(path) writable (mount -o remount,rw)"
        case .full: "free some space; destroying and expiring work meanwhile"
        case .damaged: "check the disk; damaged data cannot be read, the rest is served"
        case .keysDamaged(let path):
            "put a copy of \(path) back if there is one, and check the disk; else make a new home with `mayfly init`"
        case .missing: "put it back; without it the home cannot be opened"
        case .weakKeystore: "someone may have changed the keystore; do not type the passphrase on this machine"
        case .outOfMemory: "free some memory or raise the limit (ulimit -v)"
        case .overdueOnReadOnly(let path): "make \(path) writable, so that it can be destroyed, then unlock"
        case .unknownRow, .unknownMessage, .unknownTombstone: "list the existing ones"
        case .duplicateMessage: "nothing to do: it is stored"
        case .tooLarge: "send less at once"
        case .invalidArgument: "this is a programming error; report it"
        case .io: "check the disk (dmesg), then try again"
        case .newerFormat: "run that version; nothing was changed"
        }
    }
}

private func octal(_ mode: UInt32) -> String {
    let digits = String(mode, radix: 8)
    return String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + digits
}

/// The newest findings of damage on the disk, without duplicates, for `doctor` and `status`.
final class DamageList {
    /// The oldest entries are dropped beyond this number.
    private static let limit = 100
    private var newest: [String] = []
    private var isCut = false

    var entries: [String] {
        isCut ? newest + ["older damage, which is not listed: there are more than \(Self.limit) entries"] : newest
    }

    func report(_ what: String) {
        guard !newest.contains(what) else { return }
        newest.append(what)
        guard newest.count > Self.limit else { return }
        newest.removeFirst()
        isCut = true
    }

    /// Reports a failed write. A full disk is not damage.
    func report(_ what: String, of error: StoreError) { if error.kind != .full { report("\(what): \(error)") } }
}

enum Retry {
    /// Milliseconds between a failure and the next attempt.
    static let interval: Int64 = 1_000
}
