import ArgumentParser
import CLinux
import Control
import Glibc

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
