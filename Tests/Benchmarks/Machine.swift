import Adversary
import Glibc

enum Machine {
    /// Appends 256 bytes to a file of `directory` and calls fdatasync, `count` times. Microseconds each.
    static func synchronize(in directory: String, count: Int) throws -> [Double] {
        let path = "\(directory)/raw"
        let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Failure.system("open \(path)") }
        defer {
            close(file)
            unlink(path)
        }
        let bytes = [UInt8](repeating: 0x6d, count: 256)
        return try (0..<count).map { _ in
            try microseconds {
                guard write(file, bytes, bytes.count) == bytes.count, fdatasync(file) == 0 else {
                    throw Failure.system("append to \(path)")
                }
            }
        }
    }
}
