import Cryptography
import Glibc
import SimulatedDisk
import Testing

@testable import Store

/// Commits, checkpoints, moves and restarts in every order. Each of their calls fails once, followed by a power cut.
@Suite struct JournalFaultTests {
    @Test func `the journal keeps every acknowledged commit through failed writes and a power cut, without damage`()
        throws
    {
        let trial = try JournalTrial()
        try trial.runAll(length: 3)
        #expect(trial.violations.isEmpty, "\(trial.violations.prefix(4)) of \(trial.violations.count)")
        // Every call of every step has failed, including those that write a checkpoint's zeros and a move.
        #expect(trial.runs > 2_000 && trial.recoveries > 8_000, "\(trial.runs), \(trial.recoveries)")
    }

    @Test func `a torn block after a failed checkpoint does not restore blocks the checkpoint began to overwrite`()
        throws
    {
        let trial = try JournalTrial()
        let commit = Attempt(step: .append, failing: 0)
        for call in 3...5 {
            let checkpoint = Attempt(step: .checkpoint, failing: call)
            try trial.run([commit, commit, checkpoint, Attempt(step: .append, failing: 2)], outcomes: 400)
        }
        #expect(trial.violations.isEmpty, "\(trial.violations.prefix(4)) of \(trial.violations.count)")
        #expect(trial.recoveries > 800, "\(trial.recoveries)")
    }

    @Test func `a journal the disk refuses to read at an unlock is begun anew and sound`() throws {
        let trial = try JournalTrial()
        var model = try trial.model()
        for step in [Step.append, .append, .checkpoint, .append, .append] {
            _ = try model.take(Attempt(step: step, failing: 0))
        }
        model.disk.with { $0.unreadable = [Journal.name: 0..<Int.max] }
        let damage = DamageList()
        #expect(model.journal.recover(model.key, damage).isEmpty && damage.entries.count == 1)
        model.disk.with { $0.unreadable = [:] }
        try model.journal.reset(model.key)
        #expect(try model.recover(model.disk.snapshot()).damage.isEmpty)
        _ = try model.take(Attempt(step: .append, failing: 0))
        let found = try model.recover(model.disk.snapshot())
        #expect(found.slots.last == 5 && found.damage.isEmpty, "\(found)")
        model.close()
    }
}

private enum Step: String, CaseIterable {
    case append
    /// Everything is in the record files, and the journal is overwritten with zeros.
    case checkpoint
    /// The record files refuse writes: all records but one move to the journal's other half.
    case move
    /// The process is killed, and the next one writes the journal to the record files.
    case restart
    /// The process is killed, the record files refuse writes, and the journal continues.
    case resume
}

/// A step, and the number of its call that fails; 0 for none.
private struct Attempt: CustomStringConvertible {
    let step: Step
    let failing: Int
    var description: String { failing == 0 ? step.rawValue : "\(step.rawValue) fails at \(failing)" }
}

/// A journal, and the expected record of each slot, 0 for none.
private struct Model {
    let disk: SimulatedDisk
    let home: HomeDirectory
    private(set) var journal: Journal
    let key: JournalKey
    /// Records in memory, in the record files, and those a start after a power cut may find.
    var memory: [UInt8] = []
    var files: [UInt8] = []
    var allowed: [Set<UInt8>] = []
    /// Slots of a failed commit: the next commit writes zeros for them.
    var failed: Set<Int> = []
    /// From this slot on, records are only in memory and the journal.
    var unwritten = 0
    /// A start could not overwrite the journal, so a checkpoint must come first.
    var isBlocked = false

    static let directory = Bytes16(1, 2)
    private static let slotByteCount: Int64 = 8_192

    init(_ base: SimulatedDisk, _ key: JournalKey) throws {
        disk = base.copy()
        home = try HomeDirectory("/home", disk: disk)
        journal = Journal(in: home, damage: DamageList())
        self.key = key
        _ = journal.recover(key, DamageList())
    }

    private func batch(_ slots: some Sequence<Int>) -> JournalBatch {
        var batch = JournalBatch(byteCount: 0)
        for slot in slots {
            let body = [UInt8](repeating: memory[slot], count: slot < 2 ? 40 : 5_000)
            body.withUnsafeBytes { batch.bodies.append($0) }
            batch.add(
                JournalEntry(
                    place: FilePlace(kind: .segment, directory: Self.directory, file: Self.directory), sidecar: nil,
                    fileID: nil, offset: Int64(slot) * Self.slotByteCount, byteCount: body.count))
        }
        return batch
    }

    mutating func take(_ attempt: Attempt) throws -> Int {
        if attempt.step == .restart || attempt.step == .resume { try restart(isWrittenOut: attempt.step == .restart) }
        let before = disk.operations
        if attempt.failing > 0 {
            disk.with { $0.fault = .init(at: before + attempt.failing, code: EIO, isLasting: false) }
        }
        switch attempt.step {
        case .append, .resume: isBlocked ? checkpoint() : append()
        case .checkpoint, .restart: checkpoint()
        case .move: move()
        }
        disk.with { $0.fault = nil }
        return disk.operations - before
    }

    private mutating func append() {
        let slot = memory.count
        let value = UInt8(slot + 1)
        memory.append(value)
        files.append(0)
        do throws(StoreError) {
            try journal.append([batch(failed.sorted() + [slot])], key)
            allowed.append([value])
            for slot in failed { allowed[slot] = [0] }
            failed = []
        } catch {
            memory[slot] = 0
            allowed.append([0, value])
            failed.insert(slot)
        }
    }

    private mutating func checkpoint() {
        files = memory
        guard (try? journal.reset(key)) != nil else { return }
        isBlocked = false
        allowed = memory.map { [$0] }
        failed = []
        unwritten = memory.count
    }

    private mutating func move() {
        let erased = (unwritten..<memory.count).first { memory[$0] != 0 }
        let value = erased.map { memory[$0] }
        if let erased { memory[erased] = 0 }
        do throws(StoreError) {
            try journal.move(to: [batch(unwritten..<memory.count)], key)
            for slot in failed.union(erased.map { [$0] } ?? []) { allowed[slot] = [0] }
            failed = []
        } catch {
            guard let erased, let value else { return }
            memory[erased] = value
            allowed[erased].insert(0)
        }
    }

    /// The kernel's cache becomes durable, as when the next process begins.
    private mutating func restart(isWrittenOut: Bool) throws {
        journal.close()
        journal = Journal(in: home, damage: DamageList())
        disk.synchronizeAll()
        memory = try recover(disk.snapshot()).slots
        _ = journal.recover(key, DamageList())
        allowed = memory.map { [$0] }
        failed = []
        isBlocked = isWrittenOut
        guard isWrittenOut else { return }
        files = memory
        unwritten = memory.count
    }

    func close() {
        journal.close()
        home.close()
    }

    /// The slots that a start finds, and the damage it reports.
    func recover(_ outcome: SimulatedDisk) throws -> (slots: [UInt8], damage: [String]) {
        let home = try HomeDirectory("/home", disk: outcome)
        let damage = DamageList()
        let journal = Journal(in: home, damage: damage)
        defer {
            journal.close()
            home.close()
        }
        var slots = files
        for block in journal.recover(key, damage) {
            var position = 0
            for entry in block.entries {
                slots[Int(entry.offset / Self.slotByteCount)] = block.bodies[position]
                position += entry.byteCount
            }
        }
        return (slots, damage.entries)
    }
}

private final class JournalTrial {
    private let base = SimulatedDisk()
    private let key: JournalKey
    private(set) var runs = 0
    private(set) var recoveries = 0
    private(set) var violations: [String] = []

    init() throws {
        key = GridKeys(root: SecretBytes(copying: [UInt8](repeating: 7, count: 32))).journal
        try base.makeDirectory("/home", in: nil)
        let home = try HomeDirectory("/home", disk: base)
        try Journal.create(in: home, byteCount: 16 * JournalBlock.pageByteCount)
        home.close()
    }

    func model() throws -> Model { try Model(base, key) }

    func runAll(length: Int) throws {
        var sequences = [[Attempt(step: .append, failing: 0)]]
        for _ in 0..<length {
            var longer: [[Attempt]] = []
            for sequence in sequences {
                for step in Step.allCases {
                    let calls = try run(sequence + [Attempt(step: step, failing: 0)])
                    longer.append(sequence + [Attempt(step: step, failing: 0)])
                    for call in stride(from: 1, through: calls, by: 1) {
                        try run(sequence + [Attempt(step: step, failing: call)])
                        longer.append(sequence + [Attempt(step: step, failing: call)])
                    }
                }
            }
            sequences = longer
        }
    }

    @discardableResult func run(_ sequence: [Attempt], outcomes limit: Int = 6) throws -> Int {
        runs += 1
        var model = try model()
        defer { model.close() }
        var calls = 0
        for attempt in sequence { calls = try model.take(attempt) }
        let outcomes = Outcomes(of: model.disk)
        for choice in outcomes.choices(limit: limit, seed: UInt64(runs)) {
            recoveries += 1
            let (slots, damage) = try model.recover(outcomes.disk(choice))
            for slot in slots.indices where !model.allowed[slot].contains(slots[slot]) {
                violations.append("\(sequence): slot \(slot) has \(slots[slot]), not \(model.allowed[slot])")
            }
            for text in damage where !text.contains("its end makes no commit") {
                violations.append("\(sequence): \(text)")
            }
        }
        return calls
    }
}
