import Foundation
import FuzzTargets
import Testing

/// Every target without libFuzzer: the corpus, and some thousand mutations of it.
@Suite("Fuzz") struct FuzzTests {
    /// Mutations per target; fewer where inputs are slow. `FUZZ_CHANGES` overrides it.
    static let changeCount = ProcessInfo.processInfo.environment["FUZZ_CHANGES"].flatMap { Int($0) } ?? 2_000

    @Test("No input stops a target, and decoded values round-trip", arguments: FuzzTarget.all.map(\.name)) func replay(
        _ name: String
    ) throws {
        let target = try #require(FuzzTarget.named(name))
        let seeds = try target.seeds()
        #expect(!seeds.isEmpty)
        let campaign = Campaign(target: target, seeds: seeds + Corpus.inputs(of: name))
        let failure = campaign.run(changes: Self.changeCount / target.cost)
        #expect(failure == nil)
    }

    @Test func `The fuzzer finds a planted mistake`() throws {
        let canary = FuzzTarget.canary
        let failure = Campaign(target: canary, seeds: try canary.seeds()).run(changes: Self.changeCount)
        #expect(failure != nil)
    }
}

/// One target and its initial inputs, deterministic.
struct Campaign {
    let target: FuzzTarget
    let seeds: [[UInt8]]

    func run(changes: Int) -> String? {
        var mutator = Mutator(seed: 1, byteCountLimit: target.byteCountLimit, corpus: seeds)
        for seed in seeds { if let failure = failure(of: seed) { return failure } }
        for index in 0..<changes {
            if let failure = failure(of: mutator.mutate(seeds[index % seeds.count])) { return failure }
        }
        return nil
    }

    private func failure(of input: [UInt8]) -> String? {
        let line = "\(target.name) \(FuzzTarget.digits(input))\n"
        do {
            try LastInput.note(line) { try target.run(input) }
            return nil
        } catch { return "\(error), input \(line)" }
    }
}

enum Corpus {
    private static let directory = URL(filePath: #filePath).deletingLastPathComponent().appending(
        path: "../Fuzz/Corpus")

    static func inputs(of target: String) -> [[UInt8]] {
        let here = directory.appending(path: target).path(percentEncoded: false)
        let names = ((try? FileManager.default.contentsOfDirectory(atPath: here)) ?? []).sorted()
        return names.compactMap { FileManager.default.contents(atPath: "\(here)/\($0)").map { Array($0) } }
    }
}
