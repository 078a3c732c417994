import Glibc

struct ProcessFigures {
    let residentByteCount: Int
    let threadCount: Int
    let fileCount: Int
    let seconds: Double

    init() {
        func field(_ name: String) -> Int {
            guard let bytes = try? InputFile.read("/proc/self/status", byteLimit: 1 << 16) else { return 0 }
            for line in bytes.split(separator: UInt8(ascii: "\n")) {
                let text = String(decoding: line, as: UTF8.self)
                guard text.hasPrefix("\(name):") else { continue }
                return Int(text.filter(\.isNumber)) ?? 0
            }
            return 0
        }
        residentByteCount = field("VmRSS") * 1_024
        threadCount = field("Threads")
        fileCount = Directory.names("/proc/self/fd").count
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        func seconds(_ time: timeval) -> Double { Double(time.tv_sec) + Double(time.tv_usec) / 1_000_000 }
        self.seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime)
    }
}

enum HomeSize {
    /// Deeper than the store's directories.
    private static let depthLimit = 3

    /// One stat(2) per file, so run it on a separate thread.
    static func measure(_ path: String, depth: Int = 0) -> Int64 {
        var status = stat()
        guard lstat(path, &status) == 0 else { return 0 }
        let own = Int64(status.st_blocks) * 512
        guard status.st_mode & S_IFMT == S_IFDIR, depth < depthLimit else { return own }
        return Directory.names(path).reduce(own) { $0 + measure("\(path)/\($1)", depth: depth + 1) }
    }
}

private enum Directory {
    /// Without `.` and `..`; empty for an unreadable directory.
    static func names(_ path: String) -> [String] {
        guard let stream = opendir(path) else { return [] }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { raw in
                String(decoding: raw.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names
    }
}
