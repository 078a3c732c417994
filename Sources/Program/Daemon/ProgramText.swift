import Glibc

/// The machine code of the program and its libraries, as far as it is in this process's memory.
enum ProgramText {
    /// Lets go of all of it: what is still used comes back from the page cache when it runs next. A start runs through much
    /// that an idle node never runs again, and the kernel maps sixteen pages around each that is touched.
    ///
    /// Only mappings that are executable and not writable: nothing in them is other than in the file. Of the others some
    /// pages have been relocated, and exist nowhere else.
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
