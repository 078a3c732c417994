import Control
import Glibc

/// Where a passphrase comes from. Never from an argument: those are visible to every process of the machine.
enum Passphrase {
    /// Longest passphrase read, in bytes.
    static let byteLimit = 4096

    /// The file named by `--passphrase-file`, MAYFLY_PASSPHRASE_FILE, or the systemd credential `mayfly-passphrase`.
    static func file(option: String?) throws(ControlError) -> String? {
        if let option { return option }
        if let named = try environment("MAYFLY_PASSPHRASE_FILE") { return named }
        if let directory = try environment("CREDENTIALS_DIRECTORY") {
            let credential = "\(directory)/mayfly-passphrase"
            if access(credential, R_OK) == 0 { return credential }
        }
        return nil
    }

    /// Reads the passphrase for the duration of `body` and wipes our copy afterwards, as far as Swift allows.
    ///
    /// Without a file, a terminal is asked, without echo.
    static func withBytes<Value>(
        option: String?,
        _ terminal: Terminal,
        _ body: (UnsafeRawBufferPointer) throws -> Value
    ) throws -> Value {
        let memory = UnsafeMutableRawPointer.allocate(byteCount: byteLimit + 1, alignment: 1)
        let buffer = UnsafeMutableRawBufferPointer(start: memory, count: byteLimit + 1)
        defer {
            explicit_bzero(memory, byteLimit + 1)
            memory.deallocate()
        }
        let path = try file(option: option)
        let byteCount = try path.map { try readFile($0, into: buffer, terminal) } ?? prompt(into: buffer)
        guard byteCount > 0 else {
            throw ControlError(.usage, "the passphrase\(path.map { " in \($0)" } ?? "") is empty")
        }
        return try body(UnsafeRawBufferPointer(rebasing: buffer[..<byteCount]))
    }

    private static func readFile(
        _ path: String,
        into buffer: UnsafeMutableRawBufferPointer,
        _ terminal: Terminal
    ) throws(ControlError) -> Int {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw unreadable(path, errno) }
        defer { close(descriptor) }
        var status = stat()
        if fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_mode & 0o004 != 0 {
            terminal.warn("every user can read \(path); restrict it with `chmod 600`")
        }
        var byteCount = 0
        while byteCount < buffer.count {
            let count = read(descriptor, buffer.baseAddress?.advanced(by: byteCount), buffer.count - byteCount)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw unreadable(path, errno) }
            if count == 0 { break }
            byteCount += count
        }
        return try withoutLineEnd(buffer, byteCount)
    }

    private static func unreadable(_ path: String, _ code: Int32) -> ControlError {
        ControlError(
            .failed,
            "cannot read the passphrase file \(path): \(String(cString: strerror(code)).lowercased())",
            hint: "check --passphrase-file or MAYFLY_PASSPHRASE_FILE"
        )
    }

    private static func prompt(into buffer: UnsafeMutableRawBufferPointer) throws(ControlError) -> Int {
        let descriptor = open("/dev/tty", O_RDWR | O_CLOEXEC)
        guard descriptor >= 0, isatty(STDIN_FILENO) == 1 else {
            if descriptor >= 0 { close(descriptor) }
            throw ControlError(
                .usage,
                "no passphrase: there is no terminal to ask on",
                hint: "give --passphrase-file F or set MAYFLY_PASSPHRASE_FILE"
            )
        }
        defer { close(descriptor) }
        let count = try SilentPrompt.ask("Passphrase: ", on: descriptor, into: buffer)
        return try withoutLineEnd(buffer, count)
    }

    private static func withoutLineEnd(
        _ buffer: UnsafeMutableRawBufferPointer,
        _ byteCount: Int
    ) throws(ControlError) -> Int {
        guard byteCount <= byteLimit else {
            throw ControlError(.usage, "the passphrase is longer than \(byteLimit) bytes")
        }
        var byteCount = byteCount
        if byteCount > 0, buffer[byteCount - 1] == UInt8(ascii: "\n") { byteCount -= 1 }
        if byteCount > 0, buffer[byteCount - 1] == UInt8(ascii: "\r") { byteCount -= 1 }
        return byteCount
    }
}
