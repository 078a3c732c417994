import Cryptography
import DequeModule

/// The store's side of the group commit: unwritten data of record files in memory, and data on its way to the disk.
///
/// A commit copies new data into the journal. A checkpoint writes everything that only memory and the journal have into
/// the record files, except what earlier checkpoints in the queue write. Then it overwrites the journal. A checkpoint
/// is due when half a journal is used, or 3 s after the first commit. It also precedes the erasure of a record that the
/// journal still has, the rest of an inbox, and the lock. A large commit is itself a checkpoint and skips the journal.
final class GroupCommit {
    /// At this many bytes per file or more, a commit writes into the files directly.
    private static let directByteCount = 128 << 10
    /// Milliseconds from a commit to its checkpoint.
    static let checkpointDelay: Int64 = 3_000
    /// Upper bound of an entry without its bodies.
    private static let entryByteCount = 256

    private struct Submission {
        let sequence: UInt64
        let covered: [(file: RecordFile, range: Range<Int64>)]
        let checkpoint: [(file: RecordFile, end: Int64)]?
        let hasBacklog: Bool
        let erasures: [(file: RecordFile, erasures: [RecordFile.Erasure])]
        let usage: Int
    }

    private struct PendingErasure {
        let file: RecordFile
        let span: RecordFile.Span
        let isLast: Bool
        let error: StoreError
    }

    let committer: Committer
    private let journal: Journal
    private var key: JournalKey?
    /// The files with data for a commit or a checkpoint.
    private var files: [RecordFile] = []
    private var submissions: Deque<Submission> = []
    private var nextSequence: UInt64 = 1
    private var failures = 0
    private var checkpointFailures = 0
    /// The latest known time, and the time of the last failed checkpoint.
    private var now: Int64 = 0
    private var failedAt: Int64?
    /// Journal bytes in use once all submitted jobs are done.
    private var usage = 0
    /// Pages of the journal were unreadable: a checkpoint must come before the next append.
    private var isBlocked = false
    /// The journal has records of an earlier run, of any file.
    private var holdsEarlierRun = false
    /// Journal data of an earlier run that is not in the files yet.
    private(set) var backlog: [FileTask] = []
    private var pendingErasures: [PendingErasure] = []
    private(set) var checkpointAt: Int64?
    private let damage: DamageList
    private let unsettled: UnsettledDirectories

    init(committer: Committer, journal: Journal, damage: DamageList, unsettled: UnsettledDirectories) {
        (self.committer, self.journal, self.damage, self.unsettled) = (committer, journal, damage, unsettled)
    }

    func note(_ file: RecordFile) {
        if !file.isListed { files.append(file) }
        file.isListed = true
    }

    var hasChanges: Bool { files.contains(where: \.isDirty) }
    var hasUnwritten: Bool { files.contains(where: \.isUnwritten) }
    /// A checkpoint failed less than `Retry.interval` ago.
    var isDeferred: Bool { failedAt.map { now < $0 + Retry.interval } ?? false }
    var hasPendingErasures: Bool { !pendingErasures.isEmpty }

    /// No data of the file is on its way to the disk.
    func isAtRest(_ file: RecordFile) -> Bool {
        !file.isDirty && !file.isUnwritten && !pendingErasures.contains { $0.file === file }
            && !submissions.contains { $0.erasures.contains { $0.file === file } }
    }

    /// All appended data is durable, in the journal or in the file.
    func isDurable(_ file: RecordFile) -> Bool { file.durable == file.end }

    /// Drops uncommitted data of a file that is not read again.
    func forget(_ file: RecordFile) {
        file.discard()
        if file.isListed { files.removeAll { $0 === file } }
        file.isListed = false
        pendingErasures.removeAll { $0.file === file }
    }

    /// - Parameters:
    ///   - now: the latest time known.
    ///   - withCheckpoint: also writes everything into the record files.
    ///   - completion: `nil` for an internal commit.
    func commit(now: Int64, withCheckpoint: Bool = false, _ completion: (@Sendable (Result<Void, StoreError>) -> Void)?)
    {
        self.now = now
        absorb()
        guard let key else { return completion?(.failure(.locked)) ?? () }
        keep { ($0.isDirty || $0.isUnwritten) && !($0.owner?.isGone ?? true) }
        let files = self.files.filter(\.isDirty)
        let unwritten = self.files.filter(\.isUnwritten)
        let byteCount = files.reduce(0) { $0 + Int(clamping: $1.end - $1.submitted) }
        let erasesJournaled = files.contains { file in
            file.erasures.contains { holdsEarlierRun || $0.span.offset >= file.written }
        }
        let estimate =
            byteCount == 0 ? 0 : byteCount + files.count * Self.entryByteCount + 2 * JournalBlock.pageByteCount
        let room = isBlocked ? 0 : journal.halfByteCount - usage
        let isDirect = byteCount > 0 && (estimate > room || byteCount >= Self.directByteCount * max(1, unwritten.count))
        let isCrowded = usage + estimate > journal.halfByteCount / 2
        let hasCheckpoint =
            isDirect || erasesJournaled
            || (withCheckpoint || isCrowded) && (usage > 0 || holdsEarlierRun || !unwritten.isEmpty || !backlog.isEmpty)
        let hasNews = files.contains { $0.end > $0.exposed }
        var batch = JournalBatch(byteCount: isDirect ? 0 : byteCount)
        var covered: [(file: RecordFile, range: Range<Int64>)] = []
        for file in files where file.submitted < file.end {
            let range = file.submitted..<file.end
            covered.append((file, range))
            if isDirect {
                file.submitAll()
            } else {
                file.takeUnsubmitted(into: batch.bodies)
                batch.add(entry(file, range))
            }
        }
        let synchronizes = files.filter(\.needsSynchronizing).map(\.place)
        for file in files { file.needsSynchronizing = false }
        let erasures = files.compactMap { file in
            file.erasures.isEmpty ? nil : (file: file, erasures: file.takeErasures())
        }
        let checkpoint = hasCheckpoint ? takeCheckpoint(of: unwritten) : nil
        let sequence = nextSequence
        nextSequence += 1
        submissions.append(
            Submission(
                sequence: sequence, covered: covered, checkpoint: checkpoint?.files,
                hasBacklog: hasCheckpoint && !backlog.isEmpty, erasures: erasures,
                usage: batch.pageCount * JournalBlock.pageByteCount))
        usage += batch.pageCount * JournalBlock.pageByteCount
        // A commit with a checkpoint leaves nothing for a later one, even if it found nothing to write.
        if hasCheckpoint || withCheckpoint {
            checkpointAt = nil
        } else if !batch.isEmpty {
            checkpointAt = checkpointAt ?? now + Self.checkpointDelay
        }
        committer.submit(
            CommitJob(
                sequence: sequence, failures: failures, checkpointFailures: checkpointFailures, key: key, batch: batch,
                checkpoint: checkpoint?.tasks, isDirect: isDirect,
                erasures: erasures.map { task($0.file, $0.erasures) }, hasNews: hasNews,
                tellsErasures: erasures.contains { file in
                    file.erasures.contains { $0.kind != .due && !$0.kind.isAgain }
                }, hasJournaledErasures: erasesJournaled, synchronizes: synchronizes, completion: completion))
        absorb()
    }

    private func entry(_ file: RecordFile, _ range: Range<Int64>) -> JournalEntry {
        JournalEntry(
            place: file.place, sidecar: file.isPlaced ? nil : file.owner?.sidecarBytes, fileID: file.owner?.fileID,
            offset: range.lowerBound, byteCount: Int(range.upperBound - range.lowerBound))
    }

    private func task(_ file: RecordFile, _ erasures: [RecordFile.Erasure]) -> ErasureTask {
        ErasureTask(
            file: file.number, place: file.place, spans: erasures.filter { !$0.kind.isLast }.map(\.span),
            lastSpans: erasures.filter(\.kind.isLast).map(\.span), isVerified: erasures.contains(where: \.kind.isAgain))
    }

    private func keep(_ isKept: (RecordFile) -> Bool) {
        files.removeAll { file in
            file.isListed = isKept(file)
            return !file.isListed
        }
    }

    private func takeCheckpoint(of unwritten: [RecordFile]) -> (
        tasks: [FileTask], files: [(file: RecordFile, end: Int64)]
    ) {
        var tasks = backlog
        var files: [(file: RecordFile, end: Int64)] = []
        for file in unwritten {
            guard let owner = file.owner else { continue }
            var making = FileTask.Making.exists
            if !file.isPlaced, !file.isBeingPlaced {
                making = owner.sidecarBytes.map { .withSidecar($0) } ?? .replacing
            }
            let pieces = file.takeUnwritten()
            files.append((file, file.end))
            if pieces.isEmpty { continue }
            tasks.append(
                FileTask(
                    file: file.number, place: file.place, making: making, fileID: owner.fileID,
                    isDirectoryNew: !owner.directory.isDurable, pieces: pieces))
        }
        return (tasks, files)
    }

    func absorb() {
        var hasFailed = false
        while true {
            let outcomes = committer.takeOutcomes()
            if outcomes.isEmpty { return }
            for outcome in outcomes {
                while let submission = submissions.popFirst() {
                    guard submission.sequence == outcome.sequence else { continue }
                    absorb(outcome, submission)
                    break
                }
                hasFailed = hasFailed || outcome.failure != nil
            }
            // Jobs submitted meanwhile fail as well. Wait for that before repairing anything.
            if hasFailed { committer.drain() }
        }
    }

    private func absorb(_ outcome: CommitOutcome, _ submission: Submission) {
        if let failure = outcome.failure {
            failures += 1
            damage.report(journal.path, of: failure)
            for (file, range) in submission.covered { fail(file, range) }
            // The failed write may have left pages in the journal that only a checkpoint removes.
            checkpointAt = now
        } else {
            for (file, range) in submission.covered {
                file.committed(upTo: range.upperBound)
                file.owner?.committed()
            }
        }
        absorb(outcome.checkpoint, submission)
        for (file, erasures) in submission.erasures {
            guard let owner = file.owner, !owner.isGone else { continue }
            let error = outcome.erasureFailures[file.number]
            for erasure in erasures {
                if erasure.kind == .moved {
                    owner.moveEnded(erasure.span, isErased: outcome.failure == nil)
                    if outcome.failure != nil { continue }
                }
                guard let error else { continue }
                let isLast = erasure.kind.isLast
                pendingErasures.append(PendingErasure(file: file, span: erasure.span, isLast: isLast, error: error))
            }
        }
    }

    private func absorb(_ checkpoint: CommitOutcome.Checkpoint, _ submission: Submission) {
        switch checkpoint {
        case .none: break
        case .done:
            for (file, end) in submission.checkpoint ?? [] {
                file.checkpointed(upTo: end)
                file.owner?.directory.isDurable = true
            }
            keep { $0.isDirty || $0.isUnwritten }
            if submission.hasBacklog { backlog = [] }
            usage = submissions.reduce(0) { $0 + $1.usage }
            isBlocked = false
            holdsEarlierRun = false
            failedAt = nil
        case .moved(let error):
            checkpointFailed(submission, error, directories: [])
            for (file, erasures) in submission.erasures {
                for erasure in erasures where erasure.span.offset >= file.written { file.zero(erasure.span) }
            }
            // The other half again holds the backlog of the earlier run.
            holdsEarlierRun = submission.hasBacklog
            let kept = files.filter(\.isUnwritten).reduce(0) {
                $0 + Int(clamping: $1.end - $1.written) + $1.unwrittenPieceCount * Self.entryByteCount
            }
            let left = backlog.reduce(0) { $0 + $1.byteCount + $1.pieces.count * Self.entryByteCount }
            usage = submissions.reduce(kept + left + JournalBlock.pageByteCount) { $0 + $1.usage }
        case .failed(let error, let directories): checkpointFailed(submission, error, directories: directories)
        }
    }

    private func checkpointFailed(_ submission: Submission, _ error: StoreError, directories: [FilePlace]) {
        checkpointFailures += 1
        damage.report("\(journal.path) cannot be written out", of: error)
        for (file, _) in submission.checkpoint ?? [] { file.checkpointFailed() }
        // A full disk loses nothing: memory or the journal has the bytes, and they are written again.
        if error.kind != .full { for place in directories { unsettled.doubts[place.directoryName] = .refused } }
        failedAt = now
        checkpointAt = now + Retry.interval
    }

    private func fail(_ file: RecordFile, _ range: Range<Int64>) {
        file.commitFailed()
        guard let owner = file.owner, !owner.isGone else { return }
        owner.commitFailed(in: range)
        note(file)
    }

    func isDue(_ now: Int64) -> Bool { checkpointAt.map { $0 <= now } ?? false }

    func retryErasures() {
        let pending = pendingErasures
        pendingErasures = []
        for erasure in pending {
            guard let owner = erasure.file.owner, !owner.isGone else { continue }
            erasure.file.eraseAgain(erasure.span, isLast: erasure.isLast)
            note(erasure.file)
        }
    }

    var erasureErrors: [StoreError] { pendingErasures.map(\.error) }

    /// Drops the backlog of segments whose column keys are destroyed.
    func ended(columns tags: [[UInt8]]) {
        backlog.removeAll { task in
            guard case .withSidecar(let sidecar) = task.making else { return false }
            return ExpirySidecar.columnTag(in: sidecar).map(tags.contains) ?? true
        }
    }

    /// Takes over the journal of an earlier run.
    /// - Parameters:
    ///   - backlog: data of it that is not in the files yet.
    ///   - isReset: the journal was overwritten. Otherwise new blocks follow those of the earlier run.
    func begin(_ key: JournalKey, backlog: [FileTask], isReset: Bool) {
        self.key = key
        self.backlog = backlog
        holdsEarlierRun = !isReset
        isBlocked = journal.needsReset
        usage = isReset ? 0 : journal.usedByteCount
        failedAt = nil
        checkpointAt = isReset ? nil : 0
    }

    /// The journal data of this directory is in its files, or the inbox is destroyed.
    func settled(_ directory: Bytes16) { backlog.removeAll { $0.place.directory == directory } }

    /// Bytes of a file that only the journal of an earlier run has.
    func backlog(of place: FilePlace) -> FileTask? { backlog.first { $0.place == place } }

    /// The file in memory now has its journal data, and the next checkpoint writes it.
    func restored(_ file: RecordFile) {
        backlog.removeAll { $0.place == file.place }
        note(file)
    }

    func end() {
        committer.drain()
        absorb()
        key = nil
        files = []
        submissions = []
        backlog = []
        pendingErasures = []
        checkpointAt = nil
        usage = 0
        holdsEarlierRun = false
        isBlocked = false
    }
}
