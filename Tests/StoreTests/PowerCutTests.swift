import Foundation
import Glibc
import Store
import StoreCampaigns
import Testing

/// A small ext4 file system with default options in a file. A copy of the file while it is mounted has only the blocks
/// the kernel has written, as after a power cut.
final class DiskImage {
    private let directory: TemporaryDirectory
    let path: String
    let mount: String
    private(set) var isMounted = false

    init() throws {
        directory = TemporaryDirectory()
        path = directory.path + "/image"
        mount = directory.path + "/disk"
        mkdir(mount, 0o700)
        try Self.tool("truncate", "-s", "16M", path)
        try Self.tool("mkfs.ext4", "-q", "-F", path)
        try mountIt()
        chmod(mount, 0o700)
    }

    private init(copyOf other: DiskImage) throws {
        directory = TemporaryDirectory()
        path = directory.path + "/image"
        mount = directory.path + "/disk"
        mkdir(mount, 0o700)
        try Self.tool("cp", "--sparse=always", other.path, path)
    }

    deinit { unmount() }

    func mountIt() throws {
        try Self.tool("mount", "-o", "loop", path, mount)
        isMounted = true
    }

    func unmount() {
        if isMounted { try? Self.tool("umount", mount) }
        isMounted = false
    }

    /// The file system after a power cut at this moment, mounted: ext4 recovers its journal.
    func cut() throws -> DiskImage {
        let copy = try DiskImage(copyOf: self)
        try copy.mountIt()
        return copy
    }

    var home: String { mount + "/home" }
    var bytes: [UInt8] { Array(FileManager.default.contents(atPath: path) ?? Data()) }

    static func tool(_ words: String...) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = words
        process.standardError = FileHandle.nullDevice
        try process.run()
        process.waitUntilExit()
        if process.terminationStatus != 0 { throw Violation("\(words.joined(separator: " ")) fails") }
    }

    /// Tries to mount, because root in a container often may not. MAYFLY_TESTS_WHOLE=1 makes the tests fail instead of
    /// being skipped.
    static let canBeMade: Bool =
        ProcessInfo.processInfo.environment["MAYFLY_TESTS_WHOLE"] == "1" || geteuid() == 0 && (try? DiskImage()) != nil
}

@Suite(.serialized) struct PowerCutTests {
    private static let isCampaign = ProcessInfo.processInfo.environment["MAYFLY_CAMPAIGN"] != nil

    @Test(.enabled(if: DiskImage.canBeMade, "mounting an image needs root"))
    func `on ext4 a power cut loses no acknowledged data and restores no destroyed data`() throws {
        var images = 0
        for seed in 1...(Self.isCampaign ? 20 : 1) as ClosedRange<UInt64> {
            let image = try DiskImage()
            try Verification.makeHome(on: PosixFileSystem(), home: image.home)
            let history = History(on: PosixFileSystem(), home: image.home, seed: seed)
            try history.open()
            for (index, operation) in FaultCampaign.everyOperation.enumerated() {
                try history.step(operation)
                if !Self.isCampaign, index % 3 != 0, operation != .commit { continue }
                let copy = try image.cut()
                images += 1
                do { try Verification(history.promise, PosixFileSystem(), home: copy.home).run(isThorough: true) } catch
                { Issue.record("seed \(seed), after step \(index), \(operation): \(error)") }
                copy.unmount()
            }
            history.close()
        }
        #expect(images > 20)
        print("\(images) images")
    }

    @Test(.enabled(if: DiskImage.canBeMade, "mounting an image needs root"))
    func `on ext4 a thief with raw image and key finds no dead record, plaintext or name`() throws {
        for seed in 1...(Self.isCampaign ? 20 : 2) as ClosedRange<UInt64> {
            let image = try DiskImage()
            try Verification.makeHome(on: PosixFileSystem(), home: image.home)
            let history = History(on: PosixFileSystem(), home: image.home, seed: seed)
            try history.open()
            for operation in FaultCampaign.everyOperation + [.put, .saveState, .commit] { try history.step(operation) }
            history.close()
            let keystore = Array(try #require(FileManager.default.contents(atPath: image.home + "/keystore")))
            let promise = history.promise
            let keyFile = FileManager.default.contents(atPath: image.home + "/key").map { Array($0) }
            let written = try files(image.home)
            sync()
            image.unmount()
            let bytes = image.bytes
            let secret = try #require(promise.secrets.last)
            #expect(promise.formerPassphrases.count + promise.formerKeyFiles.count > 2)
            let opening = Thief.opening(
                [bytes], passphrases: promise.formerPassphrases.union([secret].compactMap(\.self)),
                keyFiles: promise.formerKeyFiles)
            #expect(opening == Set([secret].compactMap(\.self)))
            let found = secret.map { Thief(keystore: keystore, passphrase: $0) }
            var thief = try #require(found ?? Thief(keystore: keystore, keyFile: keyFile ?? []))
            thief.search(image: [(0, bytes)], written: written, slotCount: 64)
            let read = Set(thief.payloads.compactMap(Promise.Text.serial))
            #expect(read.isDisjoint(with: history.promise.destroyed))
            #expect(read.isSuperset(of: history.live))
            #expect(history.promise.destroyed.count > 5 && !history.live.isEmpty)
            // Every payload contains a run of dots, which must not appear in plaintext.
            let dots = [UInt8](repeating: UInt8(ascii: "."), count: 12)
            #expect(Data(bytes).range(of: Data(dots)) == nil)
        }
    }

    @Test(.enabled(if: DiskImage.canBeMade, "mounting an image needs root"))
    func `canary: on ext4 the thief finds the keys of a page file replaced by rename`() throws {
        let image = try DiskImage()
        try Verification.makeHome(on: PosixFileSystem(), home: image.home)
        let history = History(on: PosixFileSystem(), home: image.home, seed: 1)
        try history.open()
        for operation in [Operation.createInbox, .saveState, .put, .put, .commit] { try history.step(operation) }
        let keystore = Array(try #require(FileManager.default.contents(atPath: image.home + "/keystore")))
        let keyFile = Array(try #require(FileManager.default.contents(atPath: image.home + "/key")))
        let written = try files(image.home)
        history.close()
        for name in ["rows.slots", "columns.slots"] {
            try DiskImage.tool(
                "dd", "if=/dev/urandom", "of=\(image.home)/new", "bs=4096", "count=64", "conv=fsync", "status=none")
            rename(image.home + "/new", image.home + "/" + name)
        }
        sync()
        image.unmount()
        var thief = try #require(Thief(keystore: keystore, keyFile: keyFile))
        thief.search(image: [(0, image.bytes)], written: written, slotCount: 4)
        #expect(!Set(thief.payloads.compactMap(Promise.Text.serial)).isEmpty)
    }

    private func files(_ home: String) throws -> [[UInt8]] {
        let names = FileManager.default.enumerator(atPath: home)?.compactMap { $0 as? String } ?? []
        return names.sorted().compactMap { FileManager.default.contents(atPath: home + "/" + $0).map { Array($0) } }
    }
}
