import Control
import FoundationEssentials
import Glibc
import TestSupport

final class NodeProcess {
    let home: String
    let mayfly: String
    /// From the process start to its ready line, in milliseconds.
    let startUp: Double
    let client: ControlClient
    private let child: Child
    private var isRunning = true

    /// - Parameter arguments: Arguments of `mayfly run`.
    init(mayfly: String, home: String, isNew: Bool, arguments: [String] = []) throws {
        self.mayfly = mayfly
        self.home = home
        if isNew { _ = try Child.run([mayfly, "init", "--home", home, "--listen", "tcp://127.0.0.1:0", "--json"]) }
        let start = ContinuousClock.now
        let child = try Child([mayfly, "run", "--home", home] + arguments)
        let line = try child.readLine()
        startUp = (ContinuousClock.now - start) / .milliseconds(1)
        let ready: JSONValue = try JSONReader.read(line)
        guard ready["event"] == "ready" else {
            throw Failure("not a ready line: \(String(decoding: line, as: UTF8.self))")
        }
        self.child = child
        client = try ControlClient(home: home)
    }

    func memory(_ name: String) throws -> Double {
        guard let figure = child.memory(name) else { throw Failure("/proc/\(child.pid)/status has no \(name)") }
        return figure
    }

    /// Processor time so far in microseconds, with the resolution of kernel ticks.
    var processorTime: Double {
        get throws {
            guard let text = child.line("stat", "\(child.pid) "), let end = text.lastIndex(of: ")") else {
                throw Failure("there is no /proc/\(child.pid)/stat")
            }
            // proc(5): utime and stime are the 14th and 15th fields; the field after the name is the third.
            let fields = text[text.index(after: end)...].split(separator: " ")
            guard fields.count > 12, let user = Double(fields[11]), let system = Double(fields[12]) else {
                throw Failure("/proc/\(child.pid)/stat cannot be read")
            }
            return (user + system) * 1_000_000 / Double(sysconf(Int32(_SC_CLK_TCK)))
        }
    }

    /// Processor time of all threads so far, including ended ones, in microseconds.
    var runTime: Double {
        get throws {
            var clock = clockid_t()
            var time = timespec()
            guard clock_getcpuclockid(child.pid, &clock) == 0, clock_gettime(clock, &time) == 0 else {
                throw Failure("no processor time of process \(child.pid)")
            }
            return Double(time.tv_sec) * 1_000_000 + Double(time.tv_nsec) / 1_000
        }
    }

    func stop() throws {
        guard isRunning else { return }
        isRunning = false
        kill(child.pid, SIGTERM)
        let code = child.wait()
        guard code >= 0 else { throw Failure("process \(child.pid) died of signal \(-code)") }
    }

    deinit { try? stop() }
}
