import Control
import Foundation
import Glibc
import Testing

@Suite("A disk that hangs", .enabled(if: TestClock.canBeMade, "needs a C compiler")) struct HangingDiskTests {
    private static let source = """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <unistd.h>
        static void hang(void) {
            const char *path = getenv("TEST_HANG");
            while (path && !access(path, F_OK)) usleep(5000);
        }
        int fdatasync(int file) {
            static int (*next)(int);
            if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
            hang();
            return next(file);
        }
        int fsync(int file) {
            static int (*next)(int);
            if (!next) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
            hang();
            return next(file);
        }
        """

    /// - Parameter body: the disk of ann hangs while the file exists.
    private func withHangingDisk(_ body: (_ ann: TestNode, _ bob: TestNode, _ base: String) throws -> Void) throws {
        try withHomes { ann, bob in
            let base = "\(ann.directory)/hang"
            try Data(Self.source.utf8).write(to: URL(fileURLWithPath: "\(base).c"))
            try Program.tool(TestClock.compiler ?? "cc", "-shared", "-fPIC", "-o", "\(base).so", "\(base).c", "-ldl")
            ann.prefix = ["env", "LD_PRELOAD=\(base).so", "TEST_HANG=\(base)"]
            for node in [ann, bob] { try node.start() }
            try meet(ann, bob)
            try agree(ann, bob, "1d")
            try Data().write(to: URL(fileURLWithPath: base))
            defer { unlink(base) }
            try body(ann, bob, base)
        }
    }

    @Test("With 64 waiting sends status works while the disk hangs, and explode, lock and stop when it goes on")
    func waiting() throws {
        try withHangingDisk { ann, bob, base in
            try bob.stop()
            let clients = try (0..<ControlLimits.waitingConnections).map { _ in try ControlClient(home: ann.home) }
            for client in clients {
                _ = try client.send("send", ["conversation": "room", "text": "hi", "wait": "delivered"], until: nil)
                // The answer proves that the node has read the request before.
                _ = try client.call("version")
            }
            try ann.ok("status")
            unlink(base)
            try ann.fails(4, "explode", "room", "--force", "--wait", "--timeout", "1")
            try ann.ok("lock")
            try ann.ok("stop")
            _ = clients
        }
    }

    @Test func `The timeout of a send counts from the command, with and without --wait, and the node goes on`() throws {
        try withHangingDisk { ann, bob, base in
            for arguments in [["--wait", "delivered"], []] {
                let began = ContinuousClock.now
                let answer = try ann.run(["send", "room", "hi", "--timeout", "1"] + arguments)
                #expect(answer.code == 4 && answer.message.contains("not stored in time"), "\(answer)")
                // The client itself gives up ten seconds after the node should have answered.
                #expect(ContinuousClock.now - began < .seconds(9))
                try ann.ok("status")
            }
            unlink(base)
            try eventually("both are sent when the disk goes on") { try bob.texts() == ["hi", "hi"] }
        }
    }
}
