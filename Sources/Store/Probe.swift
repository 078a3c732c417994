/// Whether a disk that has refused something takes new data again.
extension Store {
    private static let probeName = "probe"
    private static let probeByteCount = 65_536

    /// Makes a few pages durable in a file without a name, which is gone at once.
    package func probe() throws(StoreError) {
        if isReadOnly || isClosed { throw .readOnly(path: home.path) }
        try onDisk(home.path) { () throws(SystemError) in
            // Of a process that ended in between: it is empty.
            try? disk.remove(Self.probeName, in: home.descriptor, isDirectory: false)
            let file = try disk.open(Self.probeName, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.remove(Self.probeName, in: home.descriptor, isDirectory: false)
            try disk.write(file, at: 0, [UInt8](repeating: 0, count: Self.probeByteCount))
            try disk.synchronize(file, dataOnly: false)
        }
    }
}
