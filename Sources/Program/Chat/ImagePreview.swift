import ArgumentParser
import CLinux
import Control
import Glibc
import Transport

/// Renders an image as terminal rows with chafa(1). It runs in a sandbox, because image libraries parse untrusted input
/// and have a history of vulnerabilities.
enum ImagePreview {
    private static let program = "/usr/bin/chafa"
    static let byteLimit: Int64 = 32 << 20
    private static let outputByteLimit = 1 << 20
    /// Milliseconds.
    private static let patience: Int64 = 10_000

    static func rows(of image: [UInt8], size: Picture.Size) throws(ControlError) -> [Row] {
        guard access(program, X_OK) == 0 else {
            throw ControlError(.failed, "chafa is not installed", hint: "install it, or /save the file")
        }
        let (end, output) = try run(
            [
                "/proc/self/exe", ConfineCommand.name, program, "--format", "symbols", "--colors", "240", "--size",
                "\(size.columns)x\(size.rows)", "--animate", "off", "-",
            ], input: image)
        guard case .exited(0) = end, !output.isEmpty else {
            throw ControlError(.failed, "this file cannot be shown as an image", hint: "/save writes it")
        }
        return PixelRows.rows(of: output, size: size)
    }

    private static func run(_ arguments: [String], input: [UInt8]) throws(ControlError) -> (
        end: ChildProcess.End, output: [UInt8]
    ) {
        var inputs = try pipeEnds()
        var outputs: [Int32] = []
        defer { for end in inputs + outputs where end >= 0 { close(end) } }
        outputs = try pipeEnds()
        let child = try start(arguments, inputs[0], outputs[1])
        for end in [inputs[0], outputs[1]] { close(end) }
        (inputs[0], outputs[1]) = (-1, -1)
        let output = exchange(input, &inputs[1], outputs[0])
        if output == nil || !child.hasEnded(within: 1_000) { child.signal(SIGKILL) }
        return (child.reap(), output ?? [])
    }

    private static func start(_ arguments: [String], _ input: Int32, _ output: Int32) throws(ControlError)
        -> ChildProcess
    {
        do throws(ChildProcess.StartFailure) {
            return try ChildProcess(
                arguments[0], arguments: ["mayfly"] + arguments.dropFirst(),
                environment: ["PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"], input: input,
                output: output)
        } catch { throw ControlError(.failed, error.text) }
    }

    /// - Returns: the output; `nil` on a timeout or when it is too long.
    private static func exchange(_ input: [UInt8], _ writing: inout Int32, _ reading: Int32) -> [UInt8]? {
        for end in [writing, reading] { _ = fcntl(end, F_SETFL, O_NONBLOCK) }
        let deadline = ContinuousClock.now + .milliseconds(patience)
        var rest = input[...]
        var output: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while output.count <= outputByteLimit, ContinuousClock.now < deadline {
            if rest.isEmpty, writing >= 0 {
                close(writing)
                writing = -1
            }
            var polled = [
                pollfd(fd: writing, events: Int16(POLLOUT), revents: 0),
                pollfd(fd: reading, events: Int16(POLLIN), revents: 0),
            ]
            poll(&polled, nfds_t(polled.count), 100)
            if polled[0].revents != 0 {
                let count = rest.withUnsafeBytes { write(writing, $0.baseAddress, $0.count) }
                // A reader that stops reading may already have enough.
                if count > 0 { rest = rest.dropFirst(count) } else if errno != EAGAIN { rest = [] }
            }
            guard polled[1].revents != 0 else { continue }
            let count = read(reading, &chunk, chunk.count)
            if count == 0 { return output }
            if count > 0 { output += chunk[..<count] } else if errno != EAGAIN { return nil }
        }
        return nil
    }
}

/// Sandbox in which the chat renders a picture. It reads system files and standard input, writes to standard output,
/// and ends soon. It has no sockets, other files or child processes; see `confinement.h`.
struct ConfineCommand: ParsableCommand {
    static let name = "confine"
    static let configuration = CommandConfiguration(commandName: name, shouldDisplay: false)

    @Argument(parsing: .captureForPassthrough) var words: [String]

    /// Address space in bytes.
    private static let memory: UInt = 1 << 30
    /// Processor time in seconds.
    private static let time: UInt = 5
    private static let descriptors: UInt = 64

    func run() throws {
        guard let program = words.first, confine_rights() == 0 else { throw ExitCode(FailureKind.failed.exitCode) }
        for (kind, limit) in [
            (RLIMIT_AS, Self.memory), (RLIMIT_CPU, Self.time), (RLIMIT_CORE, 0), (RLIMIT_NOFILE, Self.descriptors),
        ] {
            var limits = rlimit(rlim_cur: limit, rlim_max: limit)
            guard setrlimit(__rlimit_resource_t(kind.rawValue), &limits) == 0 else {
                throw ExitCode(FailureKind.failed.exitCode)
            }
        }
        // Older kernels lack file confinement. The second filter alone already limits output to standard output.
        _ = confine_files()
        guard confine_calls() == 0 else { throw ExitCode(FailureKind.failed.exitCode) }
        var arguments = words.map { strdup($0) } + [nil]
        execv(program, &arguments)
        // For example, chafa is not installed. Exit codes as in a shell.
        throw ExitCode(errno == ENOENT ? 127 : 126)
    }
}

/// Converts the output of a drawing program to rows. It keeps colour sequences (ECMA-48, SGR) and drops other control
/// sequences and invisible characters.
enum PixelRows {
    private struct Pen {
        var fore: UInt8?
        var back: UInt8?
        var isReversed = false

        var tone: Tone { .pixels(fore: fore, back: back, isReversed: isReversed) }

        /// Applies the parameters of one sequence; unknown ones have no effect.
        mutating func apply(_ parameters: [Int]) {
            var rest = parameters[...]
            while let first = rest.popFirst() {
                switch first {
                case 0: self = Pen()
                case 7: isReversed = true
                case 27: isReversed = false
                case 39: fore = nil
                case 49: back = nil
                case 30...37: fore = UInt8(first - 30)
                case 40...47: back = UInt8(first - 40)
                case 90...97: fore = UInt8(first - 82)
                case 100...107: back = UInt8(first - 92)
                case 38, 48:
                    guard rest.popFirst() == 5, let number = rest.popFirst().flatMap({ UInt8(exactly: $0) }) else {
                        return
                    }
                    if first == 38 { fore = number } else { back = number }
                default: break
                }
            }
        }
    }

    /// - Parameter size: larger images are cut.
    static func rows(of bytes: [UInt8], size: Picture.Size) -> [Row] {
        var pen = Pen()
        var rows: [Row] = []
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: true) {
            guard rows.count < size.rows else { break }
            var spans: [Span] = []
            var text = ""
            func flush() {
                if !text.isEmpty { spans.append(Span(safe(text), pen.tone)) }
                text = ""
            }
            var scalars = line.unicodeScalars[...]
            while let scalar = scalars.popFirst() {
                guard scalar == "\u{1B}" else {
                    text.unicodeScalars.append(scalar)
                    continue
                }
                flush()
                guard scalars.first == "[" else { continue }
                scalars.removeFirst()
                let body = scalars.prefix { (0x20...0x3F).contains($0.value) }
                scalars.removeFirst(body.count)
                guard scalars.popFirst() == "m" else { continue }
                pen.apply(
                    String(body).split(separator: ";", omittingEmptySubsequences: false).map {
                        $0.isEmpty ? 0 : Int($0) ?? -1
                    })
            }
            flush()
            rows.append(Row(spans: spans).cut(to: size.columns))
        }
        return rows
    }
}
