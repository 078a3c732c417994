import Glibc
import Synchronization

/// The current input of each thread, printed by the trap handler because the process cannot report it otherwise.
enum LastInput {
    private static let lineByteCount = 65_536
    private static let slotCount = 64
    nonisolated(unsafe) private static let slots: UnsafeMutablePointer<UInt8> = {
        let slots = UnsafeMutablePointer<UInt8>.allocate(capacity: slotCount * lineByteCount)
        slots.initialize(repeating: 0, count: slotCount * lineByteCount)
        install()
        return slots
    }()
    private static let taken = Mutex<[String: Int]>([:])

    static func note(_ target: String, _ input: [UInt8]) {
        let slot = taken.withLock { taken in
            if let known = taken[target] { return known }
            taken[target] = taken.count
            return taken.count - 1
        }
        guard slot < slotCount else { return }
        let line = slots + slot * lineByteCount
        var position = 0
        func put(_ byte: UInt8) {
            guard position < lineByteCount - 2 else { return }
            line[position] = byte
            position += 1
        }
        for byte in target.utf8 { put(byte) }
        put(UInt8(ascii: " "))
        let digits = Array("0123456789abcdef".utf8)
        for byte in input {
            put(digits[Int(byte >> 4)])
            put(digits[Int(byte & 15)])
        }
        line[position] = UInt8(ascii: "\n")
        line[position + 1] = 0
    }

    static func clear(_ target: String) {
        if let slot = taken.withLock({ $0[target] }), slot < slotCount { slots[slot * lineByteCount] = 0 }
    }

    private static func install() {
        for number in [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE] {
            signal(number) { number in
                let slots = LastInput.slots
                for slot in 0..<LastInput.slotCount {
                    let line = slots + slot * LastInput.lineByteCount
                    if line[0] != 0 {
                        write(2, line, strlen(UnsafeRawPointer(line).assumingMemoryBound(to: CChar.self)))
                    }
                }
                signal(number, SIG_DFL)
                raise(number)
            }
        }
    }
}
