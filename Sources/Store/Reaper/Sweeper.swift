import Dispatch

/// Removes files on a thread of its own: unlinking 16 MiB takes longer than writing a message.
final class Sweeper: Sendable {
    private let disk: any FileSystem
    private let queue: DispatchQueue?

    init(disk: any FileSystem, thread: CommitThread) {
        self.disk = disk
        queue =
            switch thread {
            case .own: DispatchQueue(label: "mayfly.store.remains", qos: .utility)
            case .caller, .later: nil
            }
    }

    func drain() { queue?.sync {} }

    private func run(_ body: @escaping @Sendable () -> Void) {
        if let queue { queue.async(execute: body) } else { body() }
    }

    /// Frees large values on its thread: releasing a hundred megabytes is slow.
    func free(_ values: some Sendable) { run { withExtendedLifetime(values) {} } }

    /// Removes a directory with its files, or a file of that name. Ignores errors: the next unlock removes it.
    func remove(directory name: String, in parent: FileDescriptor) {
        run { [disk] in
            guard let directory = try? disk.open(name, in: parent, .directory) else {
                try? disk.remove(name, in: parent, isDirectory: false)
                return
            }
            for file in (try? disk.list(directory)) ?? [] { try? disk.remove(file, in: directory, isDirectory: false) }
            disk.close(directory)
            try? disk.remove(name, in: parent, isDirectory: true)
        }
    }

    func remove(segment stem: String, _ directory: String, in parent: FileDescriptor) {
        run { [disk] in
            guard let opened = try? disk.open(directory, in: parent, .directory) else { return }
            defer { disk.close(opened) }
            try? disk.remove(stem + ".seg", in: opened, isDirectory: false)
            try? disk.remove(stem + ".expiry", in: opened, isDirectory: false)
        }
    }
}
