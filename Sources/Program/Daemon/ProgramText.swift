import Glibc

/// The resident code pages of the program and its libraries.
enum ProgramText {
    /// Drops the code pages from memory; pages that are used again come back from the page cache. Startup touches much
    /// code that an idle node never runs again, and the kernel maps 16 pages around each touched one.
    ///
    /// Only executable, non-writable mappings: they equal their files. Other mappings may hold relocated pages, which
    /// exist nowhere else.
    static func giveBack() {
        guard let maps = try? InputFile.read("/proc/self/maps", byteLimit: 1 << 20) else { return }
        for line in maps.split(separator: UInt8(ascii: "\n")) {
            let fields = line.split(separator: UInt8(ascii: " "), maxSplits: 5)
            guard fields.count == 6, fields[5].contains(UInt8(ascii: "/")), fields[1].elementsEqual("r-xp".utf8) else {
                continue
            }
            let ends = fields[0].split(separator: UInt8(ascii: "-")).compactMap { digits in
                UInt(String(decoding: digits, as: UTF8.self), radix: 16)
            }
            guard ends.count == 2, ends[0] < ends[1], let start = UnsafeMutableRawPointer(bitPattern: ends[0]) else {
                continue
            }
            madvise(start, Int(ends[1] - ends[0]), MADV_DONTNEED)
        }
    }
}
