import CLinux
import Foundation
import Glibc
import Synchronization

/// A blocking UPnP client with a helper process for each question (``UPnPHelper``); use it from one thread at a time.
/// The helper is killed on timeout or cancellation.
final class UPnPClient: Sendable {
    private struct Found {
        let gateway: LanAddress
        let local: LanAddress
        let service: UPnPQuestion.Place
    }

    /// The node's own program, started with ``UPnPHelper/command``.
    private static let program = "/proc/self/exe"
    /// Timeout of a question: 1 s of search and some answers of at most 5 s each, the library's limit.
    private static let milliseconds: Int64 = 20_000

    /// The last location of the service.
    private let found = Mutex<Found?>(nil)

    func map(_ place: MappingPlace, suggesting port: UInt16, _ isGivenUp: () -> Bool) -> PortMappingStateMachine.Outcome
    { ask(.map, place, tcp: port, udp: nil, isGivenUp) }

    func look(_ mapping: Mapping, _ isGivenUp: () -> Bool) -> PortMappingStateMachine.Outcome {
        ask(.look, mapping.place, tcp: mapping.tcp, udp: mapping.udp, isGivenUp)
    }

    func remove(_ mapping: Mapping) { _ = ask(.remove, mapping.place, tcp: mapping.tcp, udp: mapping.udp) { false } }

    private func ask(
        _ verb: UPnPQuestion.Verb, _ place: MappingPlace, tcp: UInt16, udp: UInt16?, _ isGivenUp: () -> Bool
    ) -> PortMappingStateMachine.Outcome {
        let known = found.withLock { $0 }.flatMap {
            $0.gateway == place.gateway && $0.local == place.local ? $0.service : nil
        }
        let question = UPnPQuestion(verb, place, tcp: tcp, udp: udp, found: known)
        guard let line = try? JSONEncoder().encode(question), let text = Self.run(Array(line), isGivenUp),
            let answer = try? JSONDecoder().decode(UPnPAnswer.self, from: Data(text))
        else {
            found.withLock { $0 = nil }
            return .failed(.silent)
        }
        found.withLock { $0 = answer.found.map { Found(gateway: place.gateway, local: place.local, service: $0) } }
        return answer.outcome
    }

    /// - Returns: the helper's output; `nil` if the helper failed.
    private static func run(_ question: [UInt8], _ isGivenUp: () -> Bool) -> [UInt8]? {
        var (input, output): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
        guard question.count <= UPnPHelper.lineByteCount, process_pipe(&input) == 0 else { return nil }
        // A pipe buffers this much.
        _ = write(input[1], question, question.count)
        close(input[1])
        defer { close(input[0]) }
        guard process_pipe(&output) == 0 else { return nil }
        defer { close(output[0]) }
        let child: ChildProcess
        do throws(ChildProcess.StartFailure) {
            defer { close(output[1]) }
            child = try ChildProcess(
                program, arguments: ["mayfly", UPnPHelper.command], environment: [:], input: input[0], output: output[1]
            )
        } catch { return nil }
        var left = milliseconds
        // Short turns, so that a cancellation is noticed.
        while left > 0, !isGivenUp(), !child.hasEnded(within: 50) { left -= 50 }
        child.signal(SIGKILL)
        guard child.reap() == .exited(0) else { return nil }
        var answer = [UInt8](repeating: 0, count: UPnPHelper.lineByteCount)
        let count = read(output[0], &answer, answer.count)
        return count > 0 ? Array(answer[..<count]) : nil
    }
}
