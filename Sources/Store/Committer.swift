import Dispatch
import Synchronization

/// What has to be done once before a new file's first write, or after it.
enum SetupStep: Sendable {
    case rename(String, to: String, in: FileDescriptor)
    case write(FileDescriptor, [UInt8])
    case synchronize(FileDescriptor)
    case close(FileDescriptor)
}

/// One file's part of a commit.
struct FileJob: Sendable {
    struct Write: Sendable {
        let offset: Int64
        let bytes: [UInt8]
    }
    let file: Int
    let descriptor: FileDescriptor
    let path: String
    let setup: [SetupStep]
    let writes: [Write]
    /// Once the writes are durable.
    var finish: [SetupStep] = []
    /// Zeros over what has moved to another file: written once that one is durable.
    var erasures: [(write: Write, newFile: Int)] = []
}

struct CommitJob: Sendable {
    let sequence: UInt64
    let files: [FileJob]
    /// `nil` when the store commits for itself: a failure is told to the next one that has a completion.
    let completion: (@Sendable (Result<Void, StoreError>) -> Void)?
}

/// Where commits run.
package enum CommitThread: Sendable {
    /// A thread of the store's own, so that the event loop does not wait for the disk.
    case own
    /// The caller's, before `commit` returns: for tests and short-lived commands.
    case caller
    /// The caller's, but later: whoever is handed the work runs it once, when its time has come (the simulator).
    case later(@Sendable (_ work: @escaping @Sendable () -> Void) -> Void)
}

/// The group commit: jobs that arrive while one runs are written together and synchronised once per file.
///
/// A file whose write or fsync failed stays failed: the kernel may have dropped the dirty pages and would report success
/// next time (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
final class Committer: Sendable {
    struct Outcome: Sendable {
        let sequence: UInt64
        let file: Int
        let error: StoreError?
    }

    private struct State {
        var queue: [CommitJob] = []
        var isRunning = false
        var failed: [Int: StoreError] = [:]
        var outcomes: [Outcome] = []
        /// The failure of a job that had nobody to tell it to, and may have been about what the next one answers for.
        var untold: StoreError?
    }

    private let state = Mutex(State())
    private let disk: any FileSystem
    private let thread: CommitThread
    private let queue = DispatchQueue(label: "mayfly.store.commit")

    init(disk: any FileSystem, thread: CommitThread) {
        self.disk = disk
        self.thread = thread
    }

    func submit(_ job: CommitJob) {
        let mustStart = state.withLock { state in
            state.queue.append(job)
            defer { state.isRunning = true }
            return !state.isRunning
        }
        guard mustStart else { return }
        switch thread {
        case .own: queue.async { self.run() }
        case .caller: run()
        case .later(let plan): plan { self.run() }
        }
    }

    /// Does at once what waits for a thread that is the caller's; a thread of our own is at it already.
    func hurry() {
        if case .later = thread { run() }
    }

    /// Returns when everything submitted before is on the disk or has failed.
    func drain() {
        switch thread {
        case .own: queue.sync {}
        case .caller: break
        case .later: run()
        }
    }

    /// What has finished since the last call.
    func takeOutcomes() -> [Outcome] {
        state.withLock { state in
            defer { state.outcomes = [] }
            return state.outcomes
        }
    }

    private func run() {
        while true {
            let batch = state.withLock { state in
                defer { state.queue = [] }
                if state.queue.isEmpty { state.isRunning = false }
                return state.queue
            }
            if batch.isEmpty { return }
            perform(batch)
        }
    }

    private func perform(_ batch: [CommitJob]) {
        var failed = state.withLock { $0.failed }
        var touched: [(file: Int, descriptor: FileDescriptor, path: String)] = []
        for part in batch.flatMap(\.files) {
            do throws(StoreError) {
                if let earlier = failed[part.file] {
                    closeRemaining(part.setup[...])
                    throw earlier
                }
                try take(part.setup, part.path)
                try onDisk(part.path) { () throws(SystemError) in
                    for write in part.writes { try disk.write(part.descriptor, at: write.offset, write.bytes) }
                }
                if !touched.contains(where: { $0.file == part.file }) {
                    touched.append((part.file, part.descriptor, part.path))
                }
            } catch {
                failed[part.file] = error
            }
        }
        for (file, descriptor, path) in touched where failed[file] == nil {
            do throws(StoreError) {
                try onDisk(path) { () throws(SystemError) in try disk.synchronize(descriptor, dataOnly: true) }
            } catch {
                failed[file] = error
            }
        }
        finish(batch, &failed)
        eraseMoved(batch, &failed)
        let result = failed
        let answers = state.withLock { state in
            state.failed = result
            for job in batch {
                for part in job.files {
                    state.outcomes.append(Outcome(sequence: job.sequence, file: part.file, error: result[part.file]))
                }
            }
            return batch.map { job in
                let error = state.untold ?? job.files.lazy.compactMap { result[$0.file] }.first
                state.untold = job.completion == nil ? error : nil
                return error
            }
        }
        for (job, error) in zip(batch, answers) { job.completion?(error.map { .failure($0) } ?? .success(())) }
    }

    private func finish(_ batch: [CommitJob], _ failed: inout [Int: StoreError]) {
        for part in batch.flatMap(\.files) where !part.finish.isEmpty {
            guard failed[part.file] == nil else {
                closeRemaining(part.finish[...])
                continue
            }
            do throws(StoreError) { try take(part.finish, part.path) } catch { failed[part.file] = error }
        }
    }

    /// Never before the new version is known to be on the disk: a crash in between leaves both.
    private func eraseMoved(_ batch: [CommitJob], _ failed: inout [Int: StoreError]) {
        var touched: [FileJob] = []
        for part in batch.flatMap(\.files) where !part.erasures.isEmpty && failed[part.file] == nil {
            do throws(StoreError) {
                for erasure in part.erasures where failed[erasure.newFile] == nil {
                    try onDisk(part.path) { () throws(SystemError) in
                        try disk.write(part.descriptor, at: erasure.write.offset, erasure.write.bytes)
                    }
                }
                touched.append(part)
            } catch {
                failed[part.file] = error
            }
        }
        for part in touched where failed[part.file] == nil {
            do throws(StoreError) {
                try onDisk(part.path) { () throws(SystemError) in
                    try disk.synchronize(part.descriptor, dataOnly: true)
                }
            } catch {
                failed[part.file] = error
            }
        }
    }

    private func take(_ steps: [SetupStep], _ path: String) throws(StoreError) {
        var remaining = steps[...]
        do throws(StoreError) {
            try onDisk(path) { () throws(SystemError) in
                while let step = remaining.first {
                    switch step {
                    case .write(let file, let bytes): try disk.write(file, at: 0, bytes)
                    case .synchronize(let file): try disk.synchronize(file, dataOnly: false)
                    case .rename(let old, let new, let directory): try disk.rename(old, to: new, in: directory)
                    case .close(let file): disk.close(file)
                    }
                    remaining.removeFirst()
                }
            }
        } catch {
            closeRemaining(remaining)
            throw error
        }
    }

    func closeRemaining(_ steps: ArraySlice<SetupStep>) {
        for case .close(let file) in steps { disk.close(file) }
    }
}
