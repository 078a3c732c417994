/// A mistake that is put under the node on purpose, so that a test can see it found.
package enum PlantedMistake: String, Sendable, CaseIterable {
    /// The disk says that a file is synchronised, and has done nothing.
    case lyingFsync
    /// The disk says so twenty seconds too soon: acknowledgements leave before what they acknowledge is durable.
    case lateFsync
    /// The clock's high-water mark is never written: a clock that was set back goes back.
    case forgottenClock
    /// The node's clocks run at a tenth of their speed.
    case slowClock
    /// The node's own time runs twice as fast as its clock: it destroys before the end.
    case fastClock
    /// What is in memory only is on the disk, too, where the node does not look for it.
    case writtenMemory
    /// A codec that drops the agreement's id from contents.
    case droppedAgreement
    /// A destroyed key page that is still on the disk.
    case keptRow
    /// After an explosion the machine comes back with the disk of before.
    case restoredBackup
    /// A codec that drops acknowledgements.
    case lostAcknowledgements
    /// A shell that tells its user of everything twice.
    case shownTwice
    /// A mailbox that names no dwell, and a codec that names a later slice: nobody knows how old a content is.
    case ignoredDwell
    /// A slot is destroyed at its mailbox when it is taken, before its content is durable at the receiver.
    case earlyDiscard

    /// It shows where there is a mailbox.
    var needsMailbox: Bool {
        switch self {
        case .ignoredDwell, .earlyDiscard: true
        case .lyingFsync, .lateFsync, .forgottenClock, .slowClock, .fastClock, .writtenMemory, .droppedAgreement,
            .keptRow, .restoredBackup, .lostAcknowledgements, .shownTwice:
            false
        }
    }
}
