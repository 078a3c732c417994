/// Whether a disk that has refused something takes new data again.
extension HomeDirectory {
    private static let probeName = "probe"
    private static let probeByteCount = 65_536

    /// Makes a few pages durable in a file without a name, which is gone at once.
    /// - Parameter byteCount: what is to be written next takes so many bytes.
    func probe(for byteCount: Int) throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in
            // Of a process that ended in between: it is empty.
            try? disk.remove(Self.probeName, in: descriptor, isDirectory: false)
            let file = try disk.open(Self.probeName, in: descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.remove(Self.probeName, in: descriptor, isDirectory: false)
            let pages = [UInt8](repeating: 0, count: Self.probeByteCount)
            // Beside its text a record has a place in two files.
            for offset in stride(from: 0, through: 2 * max(0, byteCount), by: pages.count) {
                try disk.write(file, at: Int64(offset), pages)
            }
            try disk.synchronize(file, dataOnly: false)
        }
    }
}
