import Foundation
import FuzzTargets
import Testing

/// Every target on every machine, without libFuzzer: the corpus, and some thousand changes of it.
@Suite("Fuzz") struct FuzzTests {
    /// Changes of all inputs of one target together; fewer where each takes longer. `FUZZ_CHANGES` asks for more.
    static let changeCount = ProcessInfo.processInfo.environment["FUZZ_CHANGES"].flatMap { Int($0) } ?? 2_000

    @Test("no input stops a target, and what comes in goes out again", arguments: FuzzTarget.all.map(\.name))
    func replay(_ name: String) throws {
        let target = try #require(FuzzTarget.named(name))
        let seeds = try target.seeds()
        #expect(!seeds.isEmpty)
        let campaign = Campaign(target, seeds: seeds + Corpus.inputs(of: name))
        let failure = campaign.run(changes: Self.changeCount / target.cost)
        #expect(failure == nil)
    }

    @Test("a planted mistake is found") func canary() throws {
        let canary = FuzzTarget.canary
        let failure = Campaign(canary, seeds: try canary.seeds()).run(changes: Self.changeCount)
        #expect(failure != nil)
    }
}

/// One target and the inputs to begin with; the same in every run.
struct Campaign {
    private let target: FuzzTarget
    private let seeds: [[UInt8]]

    init(_ target: FuzzTarget, seeds: [[UInt8]]) {
        self.target = target
        self.seeds = seeds
    }

    /// - Returns: what was found first, and the input that shows it, in hexadecimal.
    func run(changes: Int) -> String? {
        for seed in seeds { if let failure = failure(of: seed) { return failure } }
        var mutator = Mutator(seed: 1, byteCountLimit: target.byteCountLimit, corpus: seeds)
        for index in 0..<changes {
            if let failure = failure(of: mutator.mutate(seeds[index % seeds.count])) { return failure }
        }
        return nil
    }

    private func failure(of input: [UInt8]) -> String? {
        do {
            // A trap ends the process: the input is then the last that was noted.
            LastInput.note(target.name, input)
            defer { LastInput.clear(target.name) }
            try target.run(input)
            return nil
        } catch { return "\(error), input \(input.map { String(format: "%02x", $0) }.joined())" }
    }
}

/// The corpus of the repository, which `make fuzz` grows and merges.
enum Corpus {
    private static let directory = URL(filePath: #filePath).deletingLastPathComponent().appending(
        path: "../Fuzz/Corpus")

    static func inputs(of target: String) -> [[UInt8]] {
        let here = directory.appending(path: target).path(percentEncoded: false)
        let names = ((try? FileManager.default.contentsOfDirectory(atPath: here)) ?? []).sorted()
        return names.compactMap { FileManager.default.contents(atPath: "\(here)/\($0)").map { Array($0) } }
    }
}
