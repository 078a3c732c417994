import DequeModule

/// Descriptors of segments and logs for reading. A bounded number stays open between commits.
final class OpenFiles {
    private static let limit = 256
    private let disk: any FileSystem
    private let directories: InboxDirectories
    private var files: Deque<RecordFile> = []

    init(disk: any FileSystem, directories: InboxDirectories) {
        self.disk = disk
        self.directories = directories
    }

    var isEmpty: Bool { files.isEmpty }

    func descriptor(of file: RecordFile) throws(StoreError) -> FileDescriptor {
        if let descriptor = file.descriptor { return descriptor }
        let opened = try onDisk(file.path) { () throws(SystemError) in
            let directory = try directories.open(file.place.directoryName)
            defer { disk.close(directory) }
            return try disk.open(file.place.fileName, in: directory, [])
        }
        adopt(opened, for: file)
        return opened
    }

    func adopt(_ descriptor: FileDescriptor, for file: RecordFile) {
        file.descriptor = descriptor
        files.append(file)
        closeSurplus()
    }

    func closeSurplus() { while files.count > Self.limit, let file = files.popFirst() { closeDescriptor(of: file) } }

    func close(_ file: RecordFile) {
        if file.descriptor != nil { files.removeAll { $0 === file } }
        closeDescriptor(of: file)
    }

    func closeAll() {
        for file in files { closeDescriptor(of: file) }
        files = []
    }

    private func closeDescriptor(of file: RecordFile) {
        if let descriptor = file.descriptor { disk.close(descriptor) }
        file.descriptor = nil
    }
}
