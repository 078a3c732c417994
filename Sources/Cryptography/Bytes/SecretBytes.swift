import COpenSSL
import CSodium
import Synchronization

/// Secret bytes in locked memory: not implicitly copyable, never swapped out, excluded from core dumps, wiped at the
/// end.
///
/// Secrets of up to 64 bytes share locked slabs, so that thousands of identities stay within the default
/// `RLIMIT_MEMLOCK`; longer ones have guarded pages of their own (`sodium_malloc`).
package struct SecretBytes: ~Copyable, @unchecked Sendable {
    // @unchecked: only this value owns the memory, and it is never written after initialisation.
    private let base: UnsafeMutableRawPointer
    package let byteCount: Int

    /// Allocates `byteCount` zeroed bytes and lets `fill` write them.
    package init<Failure: Error>(byteCount: Int, fill: (UnsafeMutableRawBufferPointer) throws(Failure) -> Void)
        throws(Failure)
    {
        precondition(byteCount > 0, "a secret has at least one byte")
        let base = LockedMemory.allocate(byteCount)
        do throws(Failure) { try fill(UnsafeMutableRawBufferPointer(start: base, count: byteCount)) } catch {
            LockedMemory.free(base, byteCount)
            throw error
        }
        self.base = base
        self.byteCount = byteCount
    }

    /// The caller's bytes are not wiped.
    package init(copying bytes: some Collection<UInt8>) {
        self.init(byteCount: bytes.count) { destination in destination.copyBytes(from: bytes) }
    }

    /// From the operating system's generator.
    package init(randomByteCount byteCount: Int) {
        self.init(byteCount: byteCount) { destination in randombytes_buf(destination.baseAddress!, byteCount) }
    }

    package borrowing func clone() -> SecretBytes {
        withBytes { source in SecretBytes(byteCount: byteCount) { $0.copyMemory(from: source) } }
    }

    /// The pointer is valid only during `body`.
    package borrowing func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result { try body(UnsafeRawBufferPointer(start: base, count: byteCount)) }

    deinit { LockedMemory.free(base, byteCount) }
}

/// One slab is one `sodium_malloc` region divided into 64-byte slots.
private enum LockedMemory {
    private static let slotByteCount = 64
    private static let slotsPerSlab = 1_024

    // @unchecked: plain addresses, guarded by the mutex that holds them.
    private struct FreeList: @unchecked Sendable { var slots: [UnsafeMutableRawPointer] = [] }
    private static let freeList = Mutex(FreeList())

    static func allocate(_ byteCount: Int) -> UnsafeMutableRawPointer {
        Sodium.start()
        guard byteCount <= slotByteCount else { return guarded(byteCount) }
        return freeList.withLock { list in
            if list.slots.isEmpty {
                let slab = guarded(slotByteCount * slotsPerSlab)
                for index in (0..<slotsPerSlab).reversed() { list.slots.append(slab + index * slotByteCount) }
            }
            let slot = list.slots.removeLast()
            slot.initializeMemory(as: UInt8.self, repeating: 0, count: slotByteCount)
            return slot
        }
    }

    static func free(_ base: UnsafeMutableRawPointer, _ byteCount: Int) {
        guard byteCount <= slotByteCount else { return sodium_free(base) }
        sodium_memzero(base, slotByteCount)
        freeList.withLock { $0.slots.append(base) }
    }

    private static func guarded(_ byteCount: Int) -> UnsafeMutableRawPointer {
        guard let base = sodium_malloc(byteCount) else { fatalError("out of memory for \(byteCount) secret bytes") }
        sodium_memzero(base, byteCount)
        return base
    }
}

/// Initialises libcrypto without a configuration file and without cleanup at exit, when another thread may still use
/// it.
enum OpenSSL {
    private static let ready: Void = {
        _ = OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT), nil)
    }()

    static func start() { ready }
}

/// libsodium's one-time initialisation (CPU dispatch, random generator).
enum Sodium {
    private static let ready: Void = {
        guard sodium_init() >= 0 else { fatalError("libsodium could not be initialised") }
    }()

    static func start() { ready }
}

/// Overwrites an array that has held secret bytes. Best effort: Swift may have made copies.
package func wipe(_ bytes: inout [UInt8]) {
    bytes.withUnsafeMutableBytes { buffer in if let base = buffer.baseAddress { sodium_memzero(base, buffer.count) } }
}

/// Overwrites 512 KiB of the calling thread's stack below the caller: the deepest copy seen was 182 KiB down.
package func wipeStack() { sodium_stackzero(512 << 10) }

/// Comparison whose time does not depend on where the bytes differ.
package func equalInConstantTime(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    left.count == right.count && (left.isEmpty || sodium_memcmp(left, right, left.count) == 0)
}

func withContiguousBytes<Result>(_ bytes: some Collection<UInt8>, _ body: (UnsafeRawBufferPointer) -> Result) -> Result
{
    if let result = bytes.withContiguousStorageIfAvailable({ body(UnsafeRawBufferPointer($0)) }) { return result }
    return Array(bytes).withUnsafeBytes(body)
}

func wipe(_ buffer: UnsafeMutableRawBufferPointer) {
    if let base = buffer.baseAddress { sodium_memzero(base, buffer.count) }
}

// For C functions, whose bytes are `unsigned char`.
extension UnsafeRawBufferPointer {
    var octets: UnsafePointer<UInt8>! { baseAddress?.assumingMemoryBound(to: UInt8.self) }
}

extension UnsafeMutableRawBufferPointer {
    var octets: UnsafeMutablePointer<UInt8>! { baseAddress?.assumingMemoryBound(to: UInt8.self) }
}
