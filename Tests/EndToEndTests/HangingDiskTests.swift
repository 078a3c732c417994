import Control
import Foundation
import Glibc
import Testing

@testable import Program

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

    @Test("The timeout of a send counts from the command, with and without --wait, and the node goes on") func timeout()
        throws
    {
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

    @Test("A library's error is not shown to clients") func foreign() {
        struct Secret: Error {}
        #expect(knownError(Secret()) == nil)
        #expect(controlError(Secret()).kind == .failed)
    }
}
