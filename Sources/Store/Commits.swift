import DequeModule
import Glibc

extension Store {
    /// Makes everything buffered before the call durable. Commits that are asked for while one runs share the next.
    ///
    /// - Parameter completion: on the commit thread (or before this returns, with ``CommitThread/caller``). A failure
    ///   says that something buffered since the commit before may not be on the disk, also when ``reap(hide:destroy:)``
    ///   or ``lock()`` has tried meanwhile; the messages concerned are no longer served and can be appended again.
    package func commit(_ completion: @escaping @Sendable (Result<Void, StoreError>) -> Void) { submit(completion) }

    /// The same for the store's own sake. It takes along what others have buffered, so a failure is told to their commit,
    /// the next one.
    func commitUntold() { submit(nil) }

    private func submit(_ completion: (@Sendable (Result<Void, StoreError>) -> Void)?) {
        absorbOutcomes()
        let sequence = nextSequence
        nextSequence += 1
        var jobs: [FileJob] = []
        var failure: StoreError?
        let listed = dirtyFiles
        dirtyFiles = []
        movesAreWaiting = false
        for file in listed {
            file.isListed = false
            guard file.isDirty, !isGone(file) else { continue }
            do throws(StoreError) {
                let descriptor = try descriptor(of: file)
                if let segment = segments[file.number] {
                    segment.covered.append((sequence, segment.records.count))
                    for index in segment.moved.indices where segment.moved[index].sequence == nil {
                        segment.moved[index].sequence = sequence
                    }
                } else if let log = stateLogs[file.number] {
                    log.covered.append((sequence, log.latest))
                }
                jobs.append(file.takeJob(sequence: sequence, descriptor: descriptor))
            } catch {
                // Only erasures in an old file: it stays dirty for the next commit.
                failure = failure ?? error
                markDirty(file)
            }
        }
        // What stays dirty the next commit finds out for itself.
        let answer = completion.map { [failure] completion -> @Sendable (Result<Void, StoreError>) -> Void in
            { result in
                if case .success = result, let failure { completion(.failure(failure)) } else { completion(result) }
            }
        }
        committer.submit(CommitJob(sequence: sequence, files: jobs, completion: answer))
        absorbOutcomes()
        closeSurplusFiles()
    }

    /// Does the commits that wait for ``CommitThread/later(_:)`` now. To be called before blocking for one.
    package func hurryCommits() { committer.hurry() }

    /// Whether the file belongs to an inbox that is destroyed.
    private func isGone(_ file: RecordFile) -> Bool {
        segments[file.number]?.row.isGone ?? stateLogs[file.number]?.isGone ?? false
    }

    func markDirty(_ file: RecordFile) {
        guard !file.isListed else { return }
        file.isListed = true
        dirtyFiles.append(file)
    }

    /// Takes note of commits that have finished.
    func absorbOutcomes() {
        let outcomes = committer.takeOutcomes()
        for outcome in outcomes where outcome.error != nil { failedFiles.insert(outcome.file) }
        for outcome in outcomes {
            if let segment = segments[outcome.file] {
                absorb(outcome, segment)
            } else if let log = stateLogs[outcome.file] {
                absorb(outcome, log)
            }
        }
    }

    private func absorb(_ outcome: Committer.Outcome, _ segment: Segment) {
        segment.file.committed(sequence: outcome.sequence)
        let covered = segment.covered.filter { $0.sequence <= outcome.sequence }.map(\.count).max()
        segment.covered.removeAll { $0.sequence <= outcome.sequence }
        if segment.row.isGone { return }
        settleMoves(outcome, segment)
        guard let error = outcome.error else {
            if let covered { segment.durableCount = max(segment.durableCount, covered) }
            segment.row.directoryIsDurable = true
            return
        }
        report("\(home.path(Self.inboxesName))/\(segment.file.path): \(error)")
        segment.file.isClosed = true
        unsettle(segment.row)
        // What this and earlier failures left in doubt is not served, and will be overwritten once more.
        for position in segment.records.indices {
            let record = segment.records[position]
            if record.state == .erased || (position >= segment.durableCount && record.state != .failed) {
                pendingErasures.append(PendingErasure(segment: segment.file.number, span: record.span))
            }
            guard position >= segment.durableCount, record.state != .failed, record.state != .erased else { continue }
            segment.records[position].state = .failed
            if let place = segment.row.index[record.id], Int(place.file) == segment.file.number,
                place.record == position
            {
                segment.row.removeFromIndex(record.id)
                restoreOlderVersion(of: record, in: segment.row)
            }
        }
    }

    private func restoreOlderVersion(of record: MessageRecord, in row: Row) {
        guard record.version > 0 else { return }
        for segment in row.segments.values where !segment.isDead {
            for position in segment.records.indices {
                let other = segment.records[position]
                guard other.id == record.id, other.state == .superseded else { continue }
                segment.records[position].state = .live
                row.insert(segment, position)
                row.timelineIsSorted = false
            }
        }
    }

    private func absorb(_ outcome: Committer.Outcome, _ log: StateLog) {
        log.file.committed(sequence: outcome.sequence)
        let covered = log.covered.last { $0.sequence <= outcome.sequence }
        log.covered.removeAll { $0.sequence <= outcome.sequence }
        if log.isGone { return }
        if let error = outcome.error {
            report("\(home.path(Self.inboxesName))/\(log.file.path): \(error)")
            log.file.isClosed = true
            unsettle(log.row)
            log.latest = log.durable
        } else if let covered {
            log.durable = covered.latest
        }
    }

    // MARK: - Descriptors

    func descriptor(of file: RecordFile) throws(StoreError) -> FileDescriptor {
        if let descriptor = file.descriptor { return descriptor }
        let opened = try onDisk(file.path) { () throws(SystemError) in
            let directory = try openDirectory(file.directory)
            defer { disk.close(directory) }
            return try disk.open(file.name, in: directory, isReadOnly ? [] : .write)
        }
        adopt(opened, for: file)
        return opened
    }

    func adopt(_ descriptor: FileDescriptor, for file: RecordFile) {
        file.descriptor = descriptor
        openFiles.append(file)
        closeSurplusFiles()
    }

    private func closeSurplusFiles() {
        var candidates = openFiles.count
        while openFiles.count > Self.openFileLimit, candidates > 0, let file = openFiles.popFirst() {
            candidates -= 1
            if file.isDirty || !file.inFlight.isEmpty || candidates == 0 {
                openFiles.append(file)
            } else {
                closeDescriptor(of: file)
            }
        }
    }

    func closeDescriptor(of file: RecordFile) {
        if let descriptor = file.descriptor { disk.close(descriptor) }
        file.descriptor = nil
    }

    /// Drops a file nobody will read again: what is buffered is forgotten, what the commit thread has is waited for.
    func discard(_ file: RecordFile) {
        if !file.inFlight.isEmpty {
            committer.drain()
            absorbOutcomes()
        }
        committer.closeRemaining(file.discardBuffered()[...])
        if file.isListed { dirtyFiles.removeAll { $0 === file } }
        file.isListed = false
        openFiles.removeAll { $0 === file }
        closeDescriptor(of: file)
    }

    /// Takes a segment out of service, keys and all; the file stays for whoever removes it.
    func bury(_ segment: Segment) {
        guard !segment.isDead else { return }
        discard(segment.file)
        segment.isDead = true
        let number = segment.file.number
        if !segment.row.isGone {
            for record in segment.records {
                guard let place = segment.row.index[record.id], Int(place.file) == number else { continue }
                segment.row.removeFromIndex(record.id)
            }
        }
        segments[number] = nil
        segment.row.segments[number] = nil
        segment.row.noteRead(segment: number)
        withholding.remove(number)
        if segment.row.appending[segment.column.slot] === segment {
            segment.row.appending[segment.column.slot] = nil
        }
        segment.column.segments[number] = nil
    }
}
