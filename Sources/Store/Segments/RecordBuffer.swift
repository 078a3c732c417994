import Crypto

/// Sealed bytes on their way to the disk.
///
/// @unchecked Sendable: the commit thread reads a buffer only between its handover and the commit's outcome. Meanwhile
/// the store does not change it.
final class RecordBuffer: @unchecked Sendable {
    private var memory: UnsafeMutableRawBufferPointer
    private(set) var count = 0

    init(capacity: Int = 4_096) { memory = .allocate(byteCount: max(64, capacity), alignment: 16) }

    deinit { memory.deallocate() }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[..<count]) }

    /// Uninitialised room at the end.
    func extend(by byteCount: Int) -> UnsafeMutableRawBufferPointer {
        if count + byteCount > memory.count {
            let larger = UnsafeMutableRawBufferPointer.allocate(
                byteCount: max(2 * memory.count, count + byteCount), alignment: 16)
            larger.copyMemory(from: bytes)
            memory.deallocate()
            memory = larger
        }
        defer { count += byteCount }
        return UnsafeMutableRawBufferPointer(rebasing: memory[count..<(count + byteCount)])
    }

    func append(_ bytes: UnsafeRawBufferPointer) { extend(by: bytes.count).copyMemory(from: bytes) }

    func append(_ bytes: [UInt8]) { bytes.withUnsafeBytes { append($0) } }

    /// - Precondition: no other thread reads the buffer.
    func zero(_ range: Range<Int>) {
        UnsafeMutableRawBufferPointer(rebasing: memory[range]).initializeMemory(as: UInt8.self, repeating: 0)
    }
}

/// Random nonces, 100 per system call: one call for each would cost as much as the sealing.
struct NoncePool {
    private static let byteCount = 100 * 24
    private var pool = [UInt8](repeating: 0, count: Self.byteCount)
    private var used = Self.byteCount

    /// - Parameter target: at most 2,400 bytes.
    mutating func take(into target: UnsafeMutableRawBufferPointer) {
        if used + target.count > pool.count {
            pool.withUnsafeMutableBytes { fillRandomly($0) }
            used = 0
        }
        pool.withUnsafeBytes { bytes in
            target.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[used..<(used + target.count)]))
        }
        used += target.count
    }
}
