import Control
import Glibc

/// Reads what the user names: a file, or standard input for `-`.
enum InputFile {
    /// - Throws: `failed` when it cannot be read, `usage` when it is longer than `byteLimit`.
    /// - Parameter cure: of what is longer.
    static func read(_ path: String, byteLimit: Int, cure: String? = nil) throws(ControlError) -> [UInt8] {
        let descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw ControlError(.failed, "cannot read \(path): \(String(cString: strerror(errno)).lowercased())")
        }
        defer { if path != "-" { close(descriptor) } }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count == 0 { return bytes }
            if count < 0 {
                if errno == EINTR { continue }
                throw ControlError(.failed, "cannot read \(path): \(String(cString: strerror(errno)).lowercased())")
            }
            bytes.append(contentsOf: chunk[..<count])
            guard bytes.count <= byteLimit else {
                let name = path == "-" ? "standard input" : path
                throw ControlError(.usage, "\(name) is longer than \(byteLimit) bytes", hint: cure)
            }
        }
    }
}
