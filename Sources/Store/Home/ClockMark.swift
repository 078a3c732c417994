import Crypto
import Glibc

/// Clock high-water mark: two copies of value and check, each in its own sector, written in turn (Store.md, "clock").
final class ClockMark {
    static let name = "clock"
    private static let spacing: Int64 = 512

    private let file: FileDescriptor
    private let disk: any FileSystem
    private let path: String
    private(set) var value: Int64 = 0
    private var next: Int64 = 0
    /// The value was read from the kernel's cache after an interrupted run; it may not be on the disk.
    var isInDoubt = false
    /// Neither copy can be read, or one holds a time outside `Tier.times`.
    private(set) var isDamaged = false
    private var isOpen = true

    static func create(in home: HomeDirectory) throws(StoreError) {
        let disk = home.disk
        try onDisk(home.path(name)) { () throws(SystemError) in
            let file = try disk.open(name, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            var bytes = encode(0)
            bytes += [UInt8](repeating: 0, count: Int(spacing) - bytes.count)
            try disk.write(file, at: 0, bytes + encode(0))
            try disk.synchronize(file, dataOnly: false)
        }
    }

    init(in home: HomeDirectory) throws(StoreError) {
        disk = home.disk
        path = home.path(Self.name)
        file = try home.open(Self.name, home.isReadOnly ? [] : .write)
        var found: [(value: Int64, copy: Int64)] = []
        for copy in [Int64(0), 1] {
            let bytes = try onDisk(path) { () throws(SystemError) in
                try disk.read(file, at: copy * Self.spacing, count: 16)
            }
            guard let value = Self.decode(bytes) else { continue }
            if Tier.times.contains(value) { found.append((value, copy)) } else { isDamaged = true }
        }
        guard let best = found.max(by: { $0.value < $1.value }) else {
            isDamaged = true
            return
        }
        value = best.value
        next = 1 - best.copy
    }

    deinit { close() }

    func close() {
        if isOpen { disk.close(file) }
        isOpen = false
    }

    /// Writes the value again, to the older copy: see ``Doubt/refused``.
    func rewrite() throws(StoreError) { if value > 0 { try save(value) } }

    func save(_ value: Int64) throws(StoreError) {
        let offset = next * Self.spacing
        try onDisk(path) { () throws(SystemError) in
            try disk.write(file, at: offset, Self.encode(value))
            try disk.synchronize(file, dataOnly: true)
        }
        self.value = value
        isInDoubt = false
        next = 1 - next
    }

    /// Reads the clock mark of a file that another process may be writing. `nil`: neither copy can be read.
    static func read(_ file: FileDescriptor, _ disk: any FileSystem) -> Int64? {
        let values = [Int64(0), 1].compactMap { copy -> Int64? in
            (try? disk.read(file, at: copy * spacing, count: 16)).flatMap(decode)
        }
        return values.filter(Tier.times.contains).max()
    }

    /// The check has no key, so anyone who can write the file can set any time.
    private static func decode(_ bytes: [UInt8]) -> Int64? {
        bytes.integer(Int64.self, at: 0).flatMap { bytes == encode($0) ? $0 : nil }
    }

    private static func encode(_ value: Int64) -> [UInt8] {
        let bytes = value.littleEndianBytes
        return bytes + BLAKE2b.hash(Array("mayfly clock".utf8), bytes, byteCount: 16)[..<8]
    }
}
