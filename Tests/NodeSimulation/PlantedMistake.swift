/// A defect planted under the node, which a test must find.
package enum PlantedMistake: String, Sendable, CaseIterable {
    /// fsync succeeds and does nothing.
    case lyingFsync
    /// fsync succeeds twenty seconds early: acknowledgements leave before their data is durable.
    case lateFsync
    /// The clock's high-water mark is never written, so a clock that was set back goes back.
    case forgottenClock
    /// The node's clocks run at a tenth of their speed.
    case slowClock
    /// The node's time runs twice as fast as its clock: it destroys too early.
    case fastClock
    /// Messages held only in memory are also written to the disk, where the node does not look.
    case writtenMemory
    case droppedAgreement
    /// A destroyed key page remains on the disk.
    case keptRow
    /// After an explosion the machine returns with an old disk.
    case restoredBackup
    case lostAcknowledgements
    /// A shell that reports every event twice.
    case shownTwice
    /// A mailbox that names no dwell, and a codec that names a later slice: the age of contents is unknown.
    case ignoredDwell
    /// A slot is discarded at its mailbox before its content is durable at the receiver.
    case earlyDiscard

    var needsMailbox: Bool {
        switch self {
        case .ignoredDwell, .earlyDiscard: true
        case .lyingFsync, .lateFsync, .forgottenClock, .slowClock, .fastClock, .writtenMemory, .droppedAgreement,
            .keptRow, .restoredBackup, .lostAcknowledgements, .shownTwice:
            false
        }
    }
}
