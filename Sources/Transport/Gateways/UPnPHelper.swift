import CLinux
import Foundation
import Glibc

/// The process in which libminiupnpc parses a gateway's answers: one question from standard input, one answer to
/// standard output. It has no keys, no home and no other descriptors, limited memory and time, and ends with the node.
package enum UPnPHelper {
    package static let command = "gateway-helper"
    /// Heap and stacks in bytes, which bounds an endless answer.
    private static let memory: rlim_t = 64 << 20
    /// CPU time in seconds.
    private static let processor: rlim_t = 5
    /// Longest question and answer in bytes.
    static let lineByteCount = 8_192

    package static func run() {
        process_end_with_parent()
        limit(RLIMIT_DATA, memory)
        limit(RLIMIT_CPU, processor)
        limit(RLIMIT_FSIZE, 0)
        var line: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: lineByteCount)
        while line.count < lineByteCount {
            let count = read(STDIN_FILENO, &chunk, chunk.count)
            guard count > 0 else { break }
            line += chunk[..<count]
        }
        guard let question = try? JSONDecoder().decode(UPnPQuestion.self, from: Data(line)), let place = question.place
        else { return }
        var service = UPnPService(found: question.found)
        let outcome =
            switch question.verb {
            case .map: service.map(place, suggesting: question.tcp)
            case .look: service.look(place, tcp: question.tcp, udp: question.udp)
            case .remove: service.remove(place, tcp: question.tcp, udp: question.udp)
            }
        guard let answer = try? JSONEncoder().encode(UPnPAnswer(outcome, found: service.found)) else { return }
        _ = answer.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
    }

    private static func limit(_ resource: __rlimit_resource, _ value: rlim_t) {
        var limit = rlimit(rlim_cur: value, rlim_max: value)
        setrlimit(__rlimit_resource_t(resource.rawValue), &limit)
    }
}
