import Foundation
import Glibc
import Testing

/// The memory of a running node, as a debugger, a core dump or a virtual machine's snapshot reads it.
struct MemoryImage {
    /// The common prefix of all searched texts: one search finds all of them.
    let mark: String

    /// The text after each place of the mark, as far as it goes. Its number identifies the text, and it begins alike in
    /// UTF-8 and JSON.
    func findings(in node: TestNode) throws -> [String] {
        var result: [String] = []
        try Self.eachRegion(of: node.pid) { region in
            region.find(Array(mark.utf8)) { place in
                let text = region[place...].prefix(mark.utf8.count + 3)
                result.append(String(decoding: text, as: UTF8.self))
            }
        }
        return result
    }

    static func count(of bytes: [UInt8], in node: TestNode) throws -> Int {
        var count = 0
        try eachRegion(of: node.pid) { $0.find(bytes) { _ in count += 1 } }
        return count
    }

    /// Every readable mapping, whole: heap, stacks, data of libraries.
    private static func eachRegion(of pid: pid_t, _ body: (UnsafeRawBufferPointer) -> Void) throws {
        let memory = try Descriptor("/proc/\(pid)/mem", O_RDONLY)
        var bytes = [UInt8]()
        for line in try mappings(of: pid).split(separator: "\n") {
            let fields = line.split(separator: " ", omittingEmptySubsequences: true)
            guard fields.count > 1, fields[1].hasPrefix("r") else { continue }
            let ends = fields[0].split(separator: "-").compactMap { UInt64($0, radix: 16) }
            guard ends.count == 2, ends[1] <= UInt64(Int64.max) else { continue }
            let byteCount = Int(ends[1] - ends[0])
            if bytes.count < byteCount { bytes = [UInt8](repeating: 0, count: byteCount) }
            bytes.withUnsafeMutableBytes { buffer in
                // Pages that were unmapped since, and the kernel's own, are not read.
                let count = pread(memory.number, buffer.baseAddress, byteCount, off_t(ends[0]))
                if count > 0 { body(UnsafeRawBufferPointer(rebasing: buffer[..<count])) }
            }
        }
    }

    /// Foundation reads only the beginning of a file that reports no size.
    private static func mappings(of pid: pid_t) throws -> String {
        let file = try Descriptor("/proc/\(pid)/maps", O_RDONLY)
        var text: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(file.number, &chunk, chunk.count)
            guard count > 0 else { return String(decoding: text, as: UTF8.self) }
            text += chunk[..<count]
        }
    }

    /// A library for the daemon's LD_PRELOAD that makes its memory readable for the user, root or not. Without it the
    /// kernel refuses (PR_SET_DUMPABLE).
    static func openingLibrary(in directory: String) throws -> String {
        let source = """
            #define _GNU_SOURCE
            #include <stdarg.h>
            #include <sys/prctl.h>
            #include <sys/syscall.h>
            #include <unistd.h>
            int prctl(int option, ...) {
                if (option == PR_SET_DUMPABLE) return 0;
                va_list list;
                va_start(list, option);
                long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long);
                va_end(list);
                return (int)syscall(SYS_prctl, option, a, b, c, d);
            }
            """
        let library = "\(directory)/opening.so"
        let code = "\(directory)/opening.c"
        try Data(source.utf8).write(to: URL(fileURLWithPath: code))
        try Program.tool(TestClock.compiler ?? "cc", "-shared", "-fPIC", "-o", library, code)
        return library
    }
}

extension UnsafeRawBufferPointer {
    fileprivate func find(_ bytes: [UInt8], _ body: (Int) -> Void) {
        guard let base = baseAddress, let first = bytes.first else { return }
        var start = 0
        while start + bytes.count <= count,
            let found = memchr(base + start, Int32(first), count - bytes.count + 1 - start)
        {
            let place = UnsafeRawPointer(found) - base
            let isThere = memcmp(found, bytes, bytes.count) == 0
            if isThere { body(place) }
            start = place + (isThere ? bytes.count : 1)
        }
    }
}
