import ArgumentParser
import Control
import Glibc
import Messaging

struct SaveCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "save", abstract: "Save the file of a message.",
        discussion: """
            Without --output the file is saved in the current directory under its own, sanitized name. An existing \
            file is overwritten only with --force. With --force a device or a pipe receives the bytes, and the file \
            that a symbolic link names is overwritten. Only you can read a saved file.

            Examples:
              mayfly save room 4f1c
              mayfly save room 4f1c --output /tmp/log.txt --force
              mayfly save room 4f1c --output - | less
            """)

    @Argument(help: "Alias, id or name.", completion: .conversation) var conversation: String
    @Argument(help: "The message: the start of its id, or @1 for the newest.") var message: String
    @Option(help: ArgumentHelp("The target: a directory, a file, or `-`.", valueName: "path"), completion: .file())
    var output: String?
    @Flag(help: "Overwrite an existing file.") var force = false
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        if output == "-" {
            let client = try connect()
            var piece = try read(client)
            return try write(&piece, client, to: STDOUT_FILENO, "standard output")
        }
        let saved = try save()
        if terminal.json { return terminal.result(JSONValue(of: saved)) }
        terminal.fields([("saved", saved.path), ("size", sizeText(saved.byteCount))])
    }

    struct Saved: CodableRecord {
        var message = ""
        var path = ""
        var byteCount: Int64 = 0
    }

    func save() throws -> Saved {
        let client = try connect()
        var piece = try read(client)
        let path = path(named: piece.name)
        if !force, access(path, F_OK) == 0 { throw Self.exists(path) }
        if force, Self.isStream(path) {
            let descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY)
            guard descriptor >= 0 else { throw Self.failure(path, errno) }
            defer { close(descriptor) }
            try write(&piece, client, to: descriptor, path)
        } else {
            try replace(force ? try Self.followed(path) : path, with: &piece, client)
        }
        return Saved(message: piece.message, path: path, byteCount: piece.byteCount)
    }

    /// - Throws: `usage` when the file is longer than `byteLimit`.
    func bytes(byteLimit: Int64) throws -> [UInt8] {
        let client = try connect()
        var piece = try read(client)
        var result: [UInt8] = []
        while true {
            guard piece.byteCount <= byteLimit, Int64(result.count) <= byteLimit else {
                throw ControlError(.usage, "the file is larger than \(sizeText(byteLimit))", hint: "/save writes it")
            }
            result += try bytes(piece)
            guard piece.next != nil else { return result }
            piece = try read(client, after: piece)
        }
    }

    private func write(
        _ piece: inout AttachmentReadResult, _ client: ControlClient, to descriptor: Int32, _ path: String
    ) throws {
        while true {
            try write(try bytes(piece), to: descriptor, path)
            guard piece.next != nil else { return }
            piece = try read(client, after: piece)
        }
    }

    /// Atomic: the file gets its name only when it is complete.
    private func replace(_ path: String, with piece: inout AttachmentReadResult, _ client: ControlClient) throws {
        let (descriptor, partial) = try Self.begin(path)
        do {
            defer { close(descriptor) }
            try write(&piece, client, to: descriptor, path)
            if let partial { try finish(partial, path) } else { try finish(descriptor, path) }
        } catch {
            if let partial { unlink(partial) }
            throw error
        }
    }

    /// - Parameter piece: the previous piece, whose message id is exact. The user's prefix may match another message by
    ///   now.
    private func read(_ client: ControlClient, after piece: AttachmentReadResult? = nil) throws -> AttachmentReadResult
    {
        let params = AttachmentReadParams(
            conversation: conversation, message: piece?.message ?? message, from: piece?.next)
        return try client.result(AttachmentMethods.read, params)
    }

    private func bytes(_ piece: AttachmentReadResult) throws -> [UInt8] {
        guard let bytes = Base64.decode(piece.data) else {
            throw ControlError(.failed, "the node's answer cannot be understood: `data` is not Base64")
        }
        return bytes
    }

    private func path(named name: String) -> String {
        // Defence in depth: the node has sanitized the name, but a faulty node must not write elsewhere.
        let base = name.split(separator: "/").last.map(String.init) ?? "attachment"
        let safeName = base == "." || base == ".." ? "attachment" : base
        guard let output else { return safeName }
        var status = stat()
        let isDirectory = stat(output, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
        return isDirectory ? "\(output)/\(safeName)" : output
    }

    /// A device or a pipe: it is written directly, because there is no file to replace.
    static func isStream(_ path: String) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0 else { return false }
        return ![S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT)
    }

    /// Resolves symbolic links, dangling ones too, so that the target is replaced and not the link.
    private static func followed(_ path: String) throws -> String {
        var path = path
        // Linux follows 40 links.
        for _ in 0...40 {
            var target = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
            let byteCount = readlink(path, &target, Int(PATH_MAX))
            guard byteCount >= 0 else { return path }
            let text = target.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
            path = text.hasPrefix("/") ? text : "\(directory(of: path))/\(text)"
        }
        throw failure(path, ELOOP)
    }

    private static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// `O_TMPFILE`, which Glibc's module map lacks (asm-generic/fcntl.h).
    private static let nameless: Int32 = 0o20_000_000 | O_DIRECTORY

    /// Opens an unnamed file, so that an interruption leaves nothing behind. Without support for it, a temporary name
    /// is used.
    private static func begin(_ path: String) throws -> (descriptor: Int32, partial: String?) {
        if access("/proc/self/fd", F_OK) == 0 {
            let descriptor = open(directory(of: path), O_WRONLY | O_CLOEXEC | nameless, 0o600)
            if descriptor >= 0 { return (descriptor, nil) }
        }
        let partial = partial(path)
        let descriptor = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw failure(path, errno) }
        return (descriptor, partial)
    }

    /// Short, because the file's own name may have the maximum length.
    private static func partial(_ path: String) -> String {
        "\(directory(of: path))/.mayfly-\(String(UInt64.random(in: .min ... .max), radix: 16)).part"
    }

    private func finish(_ descriptor: Int32, _ path: String) throws {
        let nameless = "/proc/self/fd/\(descriptor)"
        if linkat(AT_FDCWD, nameless, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 { return }
        guard errno == EEXIST else { throw Self.failure(path, errno) }
        if !force { throw Self.exists(path) }
        // link(2) cannot replace a file.
        let partial = Self.partial(path)
        guard linkat(AT_FDCWD, nameless, AT_FDCWD, partial, AT_SYMLINK_FOLLOW) == 0 else {
            throw Self.failure(path, errno)
        }
        guard rename(partial, path) == 0 else {
            let code = errno
            unlink(partial)
            throw Self.failure(path, code)
        }
    }

    private func finish(_ partial: String, _ path: String) throws {
        if force {
            guard rename(partial, path) == 0 else { throw Self.failure(path, errno) }
            return
        }
        // Unlike rename(2), link(2) does not replace a file created meanwhile.
        guard link(partial, path) == 0 else {
            if errno == EEXIST { throw Self.exists(path) }
            // A file system without hard links.
            guard access(path, F_OK) != 0, rename(partial, path) == 0 else { throw Self.failure(path, errno) }
            return
        }
        unlink(partial)
    }

    private func write(_ bytes: [UInt8], to descriptor: Int32, _ path: String) throws {
        switch DescriptorOutput.write(bytes, to: descriptor) {
        case nil: break
        // The reader closed the pipe on purpose.
        case EPIPE where descriptor == STDOUT_FILENO: throw ExitCode.success
        case let code?: throw Self.failure(path, code)
        }
    }

    private static func exists(_ path: String) -> ControlError {
        ControlError(.failed, "\(path) exists", hint: "overwrite it with --force, or choose another --output")
    }

    private static func failure(_ path: String, _ code: Int32) -> ControlError {
        let hint =
            switch code {
            case ENOSPC, EDQUOT: "free some space there, or choose another --output"
            default: "choose another --output"
            }
        let reason = String(cString: strerror(code)).lowercased()
        return ControlError(.failed, "cannot write \(path): \(reason)", hint: hint)
    }
}
