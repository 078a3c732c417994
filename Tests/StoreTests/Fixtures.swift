import Cryptography
import Foundation
import SimulatedDisk
import StoreCampaigns
import Testing

@testable import Store

let testArgon2 = Argon2Parameters(iterations: 1, memoryByteCount: 8_192)
/// A bucket edge of every tier.
let start: Int64 = 1_800_000_000_000 / 7_200_000 * 7_200_000
let hour: Int64 = 3_600_000

func messageID(_ number: Int) -> Bytes16 { Bytes16(UInt64(number).byteSwapped, 0x0707_0707_0707_0707) }
func text(_ text: String) -> [UInt8] { Array(text.utf8) }

func secretBytes(_ text: String) -> SecretBytes { SecretBytes(copying: Array(text.utf8)) }

final class TemporaryDirectory {
    let path: String
    init() {
        var template = Array("/tmp/mayfly-store-XXXXXX".utf8CString)
        let made = mkdtemp(&template)
        precondition(made != nil, "mkdtemp")
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
    var home: String { path + "/home" }
    deinit { try? FileManager.default.removeItem(atPath: path) }
}

func makeHome(_ disk: SimulatedDisk = SimulatedDisk(), passphrase: String? = nil) throws -> SimulatedDisk {
    let secret: SecretBytes? = passphrase.map { secretBytes($0) }
    try Store.create(
        home: "/home", protection: passphrase == nil ? .keyFile : .passphrase, passphrase: secret, fileSystem: disk,
        argon2: testArgon2, journal: SimulatedDisk.journalByteCount)
    return disk
}

func openHome(
    _ disk: any FileSystem, now: Int64 = start, unlocking: Bool = true, committingOn thread: CommitThread = .caller
) throws -> Store {
    let store = try Store.open(home: "/home", fileSystem: disk, now: now, argon2Floor: testArgon2, committingOn: thread)
    if unlocking { try store.unlock(passphrase: nil) }
    return store
}

func makeStore() throws -> (disk: SimulatedDisk, store: Store) {
    let disk = try makeHome()
    return (disk, try openHome(disk))
}

func makeRow() throws -> (disk: SimulatedDisk, store: Store, row: RowID) {
    let (disk, store) = try makeStore()
    return (disk, store, try store.createRow())
}

/// The work of commits that wait to be run.
final class PendingCommits {
    private var work: [@Sendable () -> Void] = []
    var count: Int { work.count }

    var thread: CommitThread {
        nonisolated(unsafe) let pending = self
        return .later { pending.work.append($0) }
    }

    func run() { while !work.isEmpty { work.removeFirst()() } }
}

/// The payloads on a disk that its keystore and key file open.
func readable(on disk: SimulatedDisk) throws -> Set<[UInt8]> {
    var thief = try #require(
        Thief(keystore: disk.files()["/home/keystore"] ?? [], keyFile: disk.files()["/home/key"] ?? []))
    let image = disk.image()
    thief.search(image: image, written: image.map(\.bytes))
    return thief.payloads
}

extension Store {
    func texts(_ row: RowID) throws -> [String] {
        try list(row, now: start).map { String(decoding: $0.payload, as: UTF8.self) }
    }

    /// The store of the same home, closed and opened again.
    func reopened() throws -> Store {
        close()
        return try openHome(disk)
    }

    /// Commits and throws the commit's error; requires ``CommitThread/caller``.
    func commitNow() throws {
        nonisolated(unsafe) var outcome: Result<Void, StoreError>?
        commit { outcome = $0 }
        try #require(outcome != nil)
        try outcome?.get()
    }

    /// Commits and writes everything to the record files.
    func checkpointNow() throws {
        try commitNow()
        commitUntold(withCheckpoint: true)
        commits.absorb()
        try #require(!commits.hasUnwritten)
    }

    func put(_ row: RowID, _ number: Int, _ tier: Tier = .oneHour, at expiry: Int64, _ payload: String) throws {
        try append(row, id: messageID(number), tier: tier, expiresAt: expiry, payload: text(payload))
    }

    func get(_ row: RowID, _ number: Int, now: Int64) throws -> String? {
        try read(row, id: messageID(number), now: now).map { String(decoding: $0, as: UTF8.self) }
    }
}

extension MessageRecord {
    /// The plaintext before the payload.
    static func header(id: Bytes16, expiresAt: Int64, order: UInt64, version: UInt32, kind: Kind, bounds: Bounds)
        -> [UInt8]
    {
        var header = [UInt8](repeating: 0, count: headerByteCount)
        header.withUnsafeMutableBytes {
            writeHeader(
                id: id, expiresAt: expiresAt, order: order, version: version, kind: kind, bounds: bounds, to: $0)
        }
        return header
    }
}
