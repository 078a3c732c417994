import Foundation
import Glibc
import Testing

/// A clock set by the test for an unsuspecting daemon: a few lines of C before the C library.
final class TestClock {
    private let offsets: UnsafeMutablePointer<Int64>
    private let path: String
    let library: String

    private static let source = """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <time.h>
        #include <unistd.h>
        static volatile int64_t *offsets;
        static int (*next)(clockid_t, struct timespec *);
        __attribute__((constructor)) static void start(void) {
            const char *path = getenv("TEST_CLOCK");
            int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
            if (file < 0) return;
            void *page = mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
            close(file);
            if (page != MAP_FAILED) offsets = page;
        }
        int clock_gettime(clockid_t clock, struct timespec *time) {
            if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
            int code = next(clock, time);
            if (!code && offsets && clock == CLOCK_REALTIME) time->tv_sec += offsets[0];
            if (!code && offsets && clock == CLOCK_BOOTTIME) time->tv_sec += offsets[1];
            return code;
        }
        """

    /// The compiler that came with Swift, or the machine's.
    static let compiler: String? = ["clang", "cc", "gcc"].first { name in
        (try? Program.run([name, "--version"], in: NSTemporaryDirectory()))?.code == 0
    }

    static let canBeMade = Program.offers { compiler != nil }

    init(in directory: String) throws {
        path = "\(directory)/clock"
        library = "\(directory)/clock.so"
        let code = "\(directory)/clock.c"
        try Data(Self.source.utf8).write(to: URL(fileURLWithPath: code))
        try Program.tool(Self.compiler ?? "cc", "-shared", "-fPIC", "-o", library, code, "-ldl")
        try Data(count: 4_096).write(to: URL(fileURLWithPath: path))
        let file = try Descriptor(path, O_RDWR)
        guard let page = mmap(nil, 4_096, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0), page != MAP_FAILED else {
            throw HarnessError("mmap: \(errno)")
        }
        offsets = page.assumingMemoryBound(to: Int64.self)
    }

    deinit { munmap(offsets, 4_096) }

    /// The command prefix of a daemon on this clock.
    var prefix: [String] { prefix(loading: []) }

    /// - Parameter libraries: others that the daemon loads.
    func prefix(loading libraries: [String]) -> [String] {
        ["env", "LD_PRELOAD=\(([library] + libraries).joined(separator: ":"))", "TEST_CLOCK=\(path)"]
    }

    /// Seconds that CLOCK_REALTIME is ahead of the machine's.
    var realtime: Int64 {
        get { offsets[0] }
        set { offsets[0] = newValue }
    }

    /// Seconds that CLOCK_BOOTTIME is ahead of the machine's, as after a suspend.
    var boottime: Int64 {
        get { offsets[1] }
        set { offsets[1] = newValue }
    }

    /// Advances both clocks, as time does, so that no step is in doubt.
    func pass(_ seconds: Int64) {
        boottime += seconds
        realtime += seconds
    }

    static let hour: Int64 = 3_600
    static let year: Int64 = 365 * 24 * hour
}

/// Initialised nodes on one clock, not yet running, that are removed after `body`.
func withClock(_ names: String..., body: (_ nodes: [TestNode], _ clock: TestClock) throws -> Void) throws {
    try withDirectory { directory in
        let clock = try TestClock(in: directory)
        let nodes = names.map { TestNode(name: $0, directory: directory) }
        defer { for node in nodes { node.crash() } }
        for node in nodes {
            node.prefix = clock.prefix
            try node.initialise()
        }
        try body(nodes, clock)
    }
}

/// Two running nodes on one clock that share the conversation `room`; `id` is its id.
func withClockedRoom(
    lifetime: String? = nil, body: (_ ann: TestNode, _ bob: TestNode, _ id: String, _ clock: TestClock) throws -> Void
) throws {
    try withClock("ann", "bob") { nodes, clock in
        for node in nodes { try node.start() }
        let id = try meet(nodes[0], nodes[1])
        if let lifetime { try agree(nodes[0], nodes[1], lifetime) }
        try body(nodes[0], nodes[1], id, clock)
        for node in nodes { try node.stop() }
    }
}
