import CLinux
import Glibc
import Synchronization
import Testing

@testable import Program

/// `F_SETPIPE_SZ` of fcntl(2), which Glibc's module leaves out.
private let setPipeSize: Int32 = 1_031

@Suite("The output queue of a node") struct OutputQueueTests {
    private func smallPipe() throws -> (reader: Int32, writer: Int32) {
        var ends: [Int32] = [-1, -1]
        try #require(process_pipe(&ends) == 0)
        _ = fcntl(ends[1], setPipeSize, 4_096)
        return (ends[0], ends[1])
    }

    @Test func `A line for a full pipe returns at once; lines that do not fit are dropped and counted`() throws {
        let (reader, writer) = try smallPipe()
        let told = Mutex(0)
        let queue = OutputQueue(writer) { queue, count in
            told.withLock { $0 += count }
            queue.write("dropped\n")
        }
        let line = String(repeating: "x", count: 1_023) + "\n"
        for _ in 0..<2_000 { queue.write(line) }
        let dropped = queue.droppedCount
        #expect(dropped > 1_000 && dropped < 2_000 && told.withLock { $0 } == 0)
        // A late reader gets every line that was not dropped, complete, and then the number of dropped ones.
        var text: [UInt8] = []
        while !text.suffix(9).elementsEqual("\ndropped\n".utf8) {
            var chunk = [UInt8](repeating: 0, count: 65_536)
            let count = read(reader, &chunk, chunk.count)
            try #require(count > 0)
            text += chunk[..<count]
        }
        #expect(text.count == (2_000 - dropped) * 1_024 + 8)
        #expect(told.withLock { $0 } == dropped && queue.droppedCount == dropped)
        queue.finish()
        close(reader)
        close(writer)
    }

    @Test func `A line that was queued before the end is written by the end`() throws {
        let (reader, writer) = try smallPipe()
        let queue = OutputQueue(writer)
        queue.write("the last words\n")
        queue.finish()
        close(writer)
        var chunk = [UInt8](repeating: 0, count: 100)
        let count = read(reader, &chunk, chunk.count)
        #expect(String(decoding: chunk[..<max(0, count)], as: UTF8.self) == "the last words\n")
        close(reader)
    }

    @Test func `A node with unread output goes on, and logs that lines were dropped`() throws {
        try withHomes { ann, bob in
            let pipe = "\(ann.directory)/log.pipe"
            try #require(mkfifo(pipe, 0o600) == 0)
            // Both ends, so that the pipe has a reader that does not read.
            let log = try Descriptor(pipe, O_RDWR | O_NONBLOCK)
            _ = fcntl(log.number, setPipeSize, 4_096)
            ann.prefix = ["sh", "-c", #"exec "$@" 2>'\#(pipe)'"#, "sh"]
            try ann.start(["--log-level", "trace"])
            try bob.start()
            try meet(ann, bob)
            func dropped() throws -> Bool {
                try ann.ok("status")["checks"].list.contains { $0["name"].string == "log" }
            }
            let lines = String(repeating: "text\n", count: 1_000)
            try eventually("the log is full") {
                try ann.ok("send", "room", "--lines", "--wait", "delivered", input: lines)
                return try dropped()
            }
            try say("still here", ann)
            try say("and here", bob)
            #expect(try ann.ok("metrics").output.contains("mayfly_log_dropped_total "))
            var text: [UInt8] = []
            try eventually("the log says that lines are missing") {
                var chunk = [UInt8](repeating: 0, count: 65_536)
                let count = read(log.number, &chunk, chunk.count)
                if count > 0 { text += chunk[..<count] }
                return String(decoding: text, as: UTF8.self).contains("lines of the log were dropped")
            }
            for node in [ann, bob] { try node.stop() }
        }
    }

    @Test func `A node whose ready line is not read serves, and stops on request`() throws {
        try withHome { ann in
            let pipe = "\(ann.directory)/ready.pipe"
            try #require(mkfifo(pipe, 0o600) == 0)
            let output = try Descriptor(pipe, O_RDWR | O_NONBLOCK)
            _ = fcntl(output.number, setPipeSize, 4_096)
            let page = [UInt8](repeating: 0x20, count: 4_096)
            while write(output.number, page, page.count) > 0 {}
            let child = try Child([
                "sh", "-c", #"exec "$@" >'\#(pipe)'"#, "sh", Program.mayfly, "run", "--home", ann.home,
            ])
            defer { child.signal(SIGKILL) }
            try eventually("it serves") { try ann.run(["status"]).code == 0 }
            try ann.ok("stop")
            #expect(child.wait(seconds: 60) == 0)
        }
    }
}
