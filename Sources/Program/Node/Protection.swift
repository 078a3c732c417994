import ArgumentParser
import Control
import Cryptography
import Glibc
import NIOCore
import NodeRuntime
import Store

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

/// A change of a home's protection: a passphrase or a key file.
struct PassphraseChange {
    /// `nil` for a home with a key file.
    var old: String?
    /// `nil` for a key file.
    var new: String?

    var oldBytes: SecretBytes? { old.map { SecretBytes(copying: $0.utf8) } }
    var newBytes: SecretBytes? { new.map { SecretBytes(copying: $0.utf8) } }

    /// - Throws: when the change does not fit the present protection, or the new passphrase is empty.
    func check(against protection: Protection) throws(ControlError) {
        if old == nil, protection == .passphrase {
            throw ControlError(
                .failed, "this home has a passphrase already", hint: "replace it with `mayfly passphrase change`")
        }
        if old != nil, protection == .keyFile {
            throw ControlError(
                .failed, "this home has a key file and no passphrase", hint: "give it one with `mayfly passphrase set`")
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

/// Changes run one at a time, each with a slow key derivation.
enum ProtectionMethods {
    static let all: [any ServedMethod] = [change, set, drop]

    static let change = NodeMethod<PassphraseChangeParams, ProtectionResult>(
        "passphrase.change", "Replace the passphrase.", waits: .always
    ) { params, node in try change(.init(old: params.passphrase, new: params.newPassphrase), node) }

    static let set = NodeMethod<PassphraseSetParams, ProtectionResult>(
        "passphrase.set", "Replace the key file with a passphrase.", waits: .always
    ) { params, node in try change(.init(new: params.newPassphrase), node) }

    static let drop = NodeMethod<UnlockParams, ProtectionResult>(
        "passphrase.drop", "Replace the passphrase with a key file.", waits: .always
    ) { params, node in try change(.init(old: params.passphrase), node) }

    private static func change(_ change: PassphraseChange, _ node: isolated Node) throws -> Answer<ProtectionResult> {
        let state = node.status()
        try change.check(against: state.protection)
        let result = ProtectionResult(
            protection: change.new == nil ? "key file" : "passphrase", erasure: state.erasure.erasure.rawValue)
        return .later(node.changingProtection(from: change.oldBytes, to: change.newBytes).map { result })
    }
}

struct PassphraseCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "passphrase", abstract: "Change what protects the keys at rest.",
        discussion: """
            Works with the node running, locked or not, and with the node stopped. The old passphrase comes from \
            --passphrase-file, MAYFLY_PASSPHRASE_FILE, the systemd credential mayfly-passphrase, or a prompt on the \
            terminal. The new passphrase comes from --new-passphrase-file, MAYFLY_NEW_PASSPHRASE_FILE, or two prompts. \
            Neither is ever taken from an argument.

            After success the old passphrase or key file opens nothing that is on the disk. After an interruption one \
            of the two opens the home, and from then on only the one that did. A copy of the home from before the \
            change still opens with the old secret, and can open the present home. If somebody may have both, make a \
            new home.

            Examples:
              mayfly passphrase change --passphrase-file old.txt --new-passphrase-file new.txt
              mayfly passphrase set            asks twice; for a home that `init` made without a passphrase
              mayfly passphrase drop           back to a key file
            """, subcommands: [PassphraseChangeCommand.self, PassphraseSetCommand.self, PassphraseDropCommand.self])
}

struct PassphraseChangeCommand: ProtectionCommand {
    static let configuration = CommandConfiguration(
        ProtectionMethods.change,
        discussion: "Give the new one to `mayfly run` from then on. See `mayfly help passphrase`.")

    @Option(help: ArgumentHelp("Read the old passphrase from this file.", valueName: "file")) var passphraseFile:
        String?
    @Option(help: ArgumentHelp("Read the new passphrase from this file.", valueName: "file")) var newPassphraseFile:
        String?
    @OptionGroup var global: GlobalOptions

    func change(_ terminal: Terminal) throws -> PassphraseChange {
        PassphraseChange(
            old: try Passphrase.text(.current, option: passphraseFile, terminal),
            new: try Passphrase.text(.new, option: newPassphraseFile, terminal))
    }
}

struct PassphraseSetCommand: ProtectionCommand {
    static let configuration = CommandConfiguration(
        ProtectionMethods.set, discussion: "The key file is overwritten and removed. See `mayfly help passphrase`.")

    @Option(help: ArgumentHelp("Read the new passphrase from this file.", valueName: "file")) var newPassphraseFile:
        String?
    @OptionGroup var global: GlobalOptions

    func change(_ terminal: Terminal) throws -> PassphraseChange {
        PassphraseChange(new: try Passphrase.text(.new, option: newPassphraseFile, terminal))
    }
}

struct PassphraseDropCommand: ProtectionCommand {
    static let configuration = CommandConfiguration(
        ProtectionMethods.drop,
        discussion: "Anyone who can read the home can then read its data. See `mayfly help passphrase`.")

    @Option(help: ArgumentHelp("Read the passphrase from this file.", valueName: "file")) var passphraseFile: String?
    @OptionGroup var global: GlobalOptions

    func change(_ terminal: Terminal) throws -> PassphraseChange {
        PassphraseChange(old: try Passphrase.text(.current, option: passphraseFile, terminal))
    }
}

/// A command that changes the home's protection: through the node, or on the files when no node runs.
protocol ProtectionCommand: NodeCommand { func change(_ terminal: Terminal) throws -> PassphraseChange }

extension ProtectionCommand {
    func perform(_ terminal: Terminal) throws {
        let client: ControlClient?
        do { client = try connect() } catch let error as ControlError where error.kind == .noNode { client = nil }
        let home = try global.resolvedHome()
        // Before the user is asked for a passphrase.
        let protection = try client.map(Self.protection) ?? StoppedHome.protection(home)
        try checkKind(protection)
        let change = try change(terminal)
        try change.check(against: protection)
        let answer = try client.map { try ask($0, change) } ?? StoppedHome.change(home, change)
        if terminal.json { return terminal.result(answer) }
        let result = try understand(answer, as: ProtectionResult.self)
        terminal.note("protected by a \(result.protection) now; the old protection opens nothing any more")
        if result.erasure == "best-effort" {
            terminal.warn("old copies may survive on this file system: erasure is best-effort")
        }
    }

    private func checkKind(_ protection: Protection) throws(ControlError) {
        // A sample change: only its kind is checked here.
        let name = Self.configuration.commandName
        let example = PassphraseChange(old: name == "set" ? nil : "old", new: name == "drop" ? nil : "new")
        try example.check(against: protection)
    }

    private static func protection(_ client: ControlClient) throws -> Protection {
        let status = try client.result(NodeMethods.status, Nothing())
        return status.protection == "key file" ? .keyFile : .passphrase
    }

    private func ask(_ client: ControlClient, _ change: PassphraseChange) throws -> JSONValue {
        // Argon2id is slow on a small machine and runs twice.
        let timeout = Duration.seconds(240)
        switch (change.old, change.new) {
        case (let old?, let new?):
            let params = PassphraseChangeParams(passphrase: old, newPassphrase: new)
            return try client.call(ProtectionMethods.change, params, timeout: timeout)
        case (let old?, nil): return try client.call(ProtectionMethods.drop, .init(passphrase: old), timeout: timeout)
        case (nil, let new):
            return try client.call(ProtectionMethods.set, .init(newPassphrase: new ?? ""), timeout: timeout)
        }
    }
}

private enum StoppedHome {
    static func protection(_ home: String) throws -> Protection {
        do throws(StoreError) { return try HomeInspection(home: home).protection } catch { throw controlError(error) }
    }

    static func change(_ home: String, _ change: PassphraseChange) throws -> JSONValue {
        do throws(StoreError) {
            let store = try Store.open(home: home, now: NodeClock.realtime())
            defer { store.close() }
            try store.changeProtection(from: change.oldBytes, to: change.newBytes)
            return JSONValue(
                of: ProtectionResult(
                    protection: store.protection == .keyFile ? "key file" : "passphrase",
                    erasure: store.erasurePromise.erasure.rawValue))
        } catch { throw controlError(error) }
    }
}

/// Reads passphrases, never from an argument: arguments are visible to every process of the machine.
enum Passphrase {
    static let byteLimit = 4096

    enum Kind {
        case current
        /// A new passphrase: at a terminal the user types it twice.
        case new

        var option: String { self == .current ? "--passphrase-file" : "--new-passphrase-file" }
        var variable: String { self == .current ? "MAYFLY_PASSPHRASE_FILE" : "MAYFLY_NEW_PASSPHRASE_FILE" }
        var question: String { self == .current ? "Passphrase: " : "New passphrase: " }
    }

    /// The file named by the option or the variable, or the systemd credential `mayfly-passphrase`.
    static func file(_ kind: Kind = .current, option: String?) throws(ControlError) -> String? {
        if let option { return option }
        if let named = try environment(kind.variable) { return named }
        if kind == .current, let directory = try environment("CREDENTIALS_DIRECTORY") {
            let credential = "\(directory)/mayfly-passphrase"
            if access(credential, R_OK) == 0 { return credential }
        }
        return nil
    }

    /// Reads the passphrase for the duration of `body` and wipes our copy afterwards, as far as Swift allows.
    ///
    /// Without a file, the user types it at the terminal, without echo.
    static func withBytes<Value>(
        _ kind: Kind = .current, option: String?, _ terminal: Terminal, _ body: (UnsafeRawBufferPointer) throws -> Value
    ) throws -> Value {
        try withBuffer { buffer in
            let path = try file(kind, option: option)
            let byteCount =
                try path.map { try readFile($0, kind, into: buffer, terminal) }
                ?? prompt(kind, kind.question, into: buffer)
            guard byteCount > 0 else {
                throw ControlError(.usage, "the passphrase\(path.map { " in \($0)" } ?? "") is empty")
            }
            if path == nil, kind == .new { try promptAgain(for: buffer[..<byteCount]) }
            return try body(UnsafeRawBufferPointer(rebasing: buffer[..<byteCount]))
        }
    }

    static func text(_ kind: Kind, option: String?, _ terminal: Terminal) throws -> String {
        try withBytes(kind, option: option, terminal) { bytes in
            // A user may have to type it later.
            guard let text = String(validating: bytes, as: UTF8.self) else {
                throw ControlError(.usage, "the passphrase is not UTF-8 text")
            }
            return text
        }
    }

    private static func withBuffer<Value>(_ body: (UnsafeMutableRawBufferPointer) throws -> Value) throws -> Value {
        let memory = UnsafeMutableRawPointer.allocate(byteCount: byteLimit + 1, alignment: 1)
        defer {
            explicit_bzero(memory, byteLimit + 1)
            memory.deallocate()
        }
        return try body(UnsafeMutableRawBufferPointer(start: memory, count: byteLimit + 1))
    }

    /// Asks again, because a mistyped passphrase would lose the home.
    private static func promptAgain(for answer: Slice<UnsafeMutableRawBufferPointer>) throws {
        try withBuffer { buffer in
            let byteCount = try prompt(.new, "Repeat the new passphrase: ", into: buffer)
            guard answer.elementsEqual(buffer[..<byteCount]) else {
                throw ControlError(.failed, "the two passphrases differ", hint: "nothing was changed")
            }
        }
    }

    private static func readFile(
        _ path: String, _ kind: Kind, into buffer: UnsafeMutableRawBufferPointer, _ terminal: Terminal
    ) throws(ControlError) -> Int {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw unreadable(path, kind, errno) }
        defer { close(descriptor) }
        var status = stat()
        if fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_mode & 0o004 != 0 {
            terminal.warn("other users can read \(path); restrict it with `chmod 600`")
        }
        var byteCount = 0
        while byteCount < buffer.count {
            let count = read(descriptor, buffer.baseAddress?.advanced(by: byteCount), buffer.count - byteCount)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw unreadable(path, kind, errno) }
            if count == 0 { break }
            byteCount += count
        }
        return try withoutLineEnd(buffer, byteCount)
    }

    private static func unreadable(_ path: String, _ kind: Kind, _ code: Int32) -> ControlError {
        ControlError(
            .failed, "cannot read the passphrase file \(path): \(String(cString: strerror(code)).lowercased())",
            hint: "check \(kind.option) or \(kind.variable)")
    }

    private static func prompt(_ kind: Kind, _ question: String, into buffer: UnsafeMutableRawBufferPointer)
        throws(ControlError) -> Int
    {
        let descriptor = open("/dev/tty", O_RDWR | O_CLOEXEC)
        guard descriptor >= 0, isatty(STDIN_FILENO) == 1 else {
            if descriptor >= 0 { close(descriptor) }
            throw ControlError(
                .usage, "no passphrase: there is no terminal to ask on",
                hint: "give \(kind.option) F or set \(kind.variable)")
        }
        defer { close(descriptor) }
        let count = try SilentPrompt.ask(question, on: descriptor, into: buffer)
        return try withoutLineEnd(buffer, count)
    }

    private static func withoutLineEnd(_ buffer: UnsafeMutableRawBufferPointer, _ byteCount: Int) throws(ControlError)
        -> Int
    {
        guard byteCount <= byteLimit else {
            throw ControlError(.usage, "the passphrase is longer than \(byteLimit) bytes")
        }
        var byteCount = byteCount
        if byteCount > 0, buffer[byteCount - 1] == UInt8(ascii: "\n") {
            byteCount -= 1
            if byteCount > 0, buffer[byteCount - 1] == UInt8(ascii: "\r") { byteCount -= 1 }
        }
        return byteCount
    }
}

/// A terminal prompt without echo. It restores the terminal however the program ends or stops meanwhile.
enum SilentPrompt {
    private static let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP]

    /// Write end of the self-pipe for signals. It does not change during a prompt.
    nonisolated(unsafe) private static var told: Int32 = -1

    /// - Parameter descriptor: the terminal.
    /// - Returns: number of answer bytes in `buffer`, line end included.
    static func ask(_ question: String, on descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer)
        throws(ControlError) -> Int
    {
        let ends = try pipeEnds()
        defer { for end in ends { close(end) } }
        told = ends[1]
        var shown = termios()
        tcgetattr(descriptor, &shown)
        var silent = shown
        silent.c_lflag &= ~tcflag_t(ECHO)
        silent.c_lflag |= tcflag_t(ECHONL)
        while true {
            let before = handle()
            tcsetattr(descriptor, TCSAFLUSH, &silent)
            _ = DescriptorOutput.write(question.utf8, to: descriptor)
            let signal = wait(for: descriptor, orSignal: ends[0])
            let count = signal == nil ? answer(descriptor, into: buffer) : 0
            let failure = errno
            tcsetattr(descriptor, TCSAFLUSH, &shown)
            for (number, action) in before { withUnsafePointer(to: action) { _ = sigaction(number, $0, nil) } }
            if let signal {
                _ = DescriptorOutput.write("\n".utf8, to: descriptor)
                guard signal != SIGINT else { throw ControlError(.failed, "interrupted") }
                obey(signal)
            } else if count >= 0 {
                return count
            } else {
                throw ControlError(
                    .failed, "cannot read from the terminal: \(String(cString: strerror(failure)).lowercased())")
            }
        }
    }

    static func isIgnored(_ number: Int32) -> Bool {
        var action = sigaction()
        sigaction(number, nil, &action)
        // The kernel's value of `SIG_IGN` (signal.h).
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
    }

    private static func handle() -> [(Int32, sigaction)] {
        var handling = sigaction()
        handling.__sigaction_handler.sa_handler = { number in
            let before = errno
            var byte = UInt8(truncatingIfNeeded: number)
            _ = write(SilentPrompt.told, &byte, 1)
            errno = before
        }
        return signals.filter { !isIgnored($0) }.map { number in
            var before = sigaction()
            sigaction(number, &handling, &before)
            return (number, before)
        }
    }

    /// - Returns: a received signal; `nil` when there is input.
    private static func wait(for descriptor: Int32, orSignal pipe: Int32) -> Int32? {
        var polled = [
            pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: pipe, events: Int16(POLLIN), revents: 0),
        ]
        while poll(&polled, 2, -1) < 0, errno == EINTR {}
        var byte: UInt8 = 0
        return polled[1].revents != 0 && read(pipe, &byte, 1) == 1 ? Int32(byte) : nil
    }

    private static func answer(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) -> Int {
        while true {
            let count = read(descriptor, buffer.baseAddress, buffer.count)
            if count >= 0 || errno != EINTR { return count }
        }
    }

    /// Applies the signal's default action.
    private static func obey(_ number: Int32) {
        // This may be a pool thread, which blocks signals.
        var only = sigset_t()
        sigemptyset(&only)
        sigaddset(&only, number)
        pthread_sigmask(SIG_UNBLOCK, &only, nil)
        raise(number)
    }
}
