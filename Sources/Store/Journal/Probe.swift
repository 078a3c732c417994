/// A test write: whether a disk that refused a write accepts new data again.
extension HomeDirectory {
    private static let probeName = "probe"
    private static let probeByteCount = 65_536

    /// Makes a few pages durable in a temporary, already unlinked file.
    /// - Parameter byteCount: size of the next write.
    func probe(for byteCount: Int) throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in
            // Left, empty, by a process that ended in between.
            try? disk.remove(Self.probeName, in: descriptor, isDirectory: false)
            let file = try disk.open(Self.probeName, in: descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.remove(Self.probeName, in: descriptor, isDirectory: false)
            let pages = [UInt8](repeating: 0, count: Self.probeByteCount)
            // A record takes space in two files: the journal and its segment.
            for offset in stride(from: 0, through: 2 * max(0, byteCount), by: pages.count) {
                try disk.write(file, at: Int64(offset), pages)
            }
            try disk.synchronize(file, dataOnly: false)
        }
    }
}
