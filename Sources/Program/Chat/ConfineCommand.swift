import ArgumentParser
import CLinux
import Control
import Glibc

/// What the chat starts to look at a picture: not for people.
///
/// A program without rights: it reads the system's own files and standard input, writes to standard output, and ends soon. No
/// socket, no file, no other process; see `confinement.h`.
struct ConfineCommand: ParsableCommand {
    static let name = "confine"
    static let configuration = CommandConfiguration(commandName: name, shouldDisplay: false)

    @Argument(parsing: .captureForPassthrough) var words: [String]

    /// Bytes of memory.
    private static let memory: UInt = 1 << 30
    /// Seconds of processor time.
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
        // Not every kernel has the first; the second alone lets nothing out but what is written to standard output.
        _ = confine_files()
        guard confine_calls() == 0 else { throw ExitCode(FailureKind.failed.exitCode) }
        var arguments = words.map { strdup($0) } + [nil]
        execv(program, &arguments)
        // chafa is not installed, for example: as a shell says it.
        throw ExitCode(errno == ENOENT ? 127 : 126)
    }
}
