/// What can be seen of a home without its lock and without its keys: for `mayfly doctor`.
package struct HomeInspection: Sendable {
    /// How many of the two copies of the keystore can be read.
    package let keystoreCopyCount: Int
    package let protection: Protection
    /// The latest time ever saved, in milliseconds since the epoch; `nil` when neither copy can be read.
    package let clockMark: Int64?
    package let erasurePromise: ErasurePromise

    /// Checks owner, modes and the directories above, and changes nothing.
    /// - Throws: what ``Store/open(home:fileSystem:now:argon2Floor:committingOn:)`` would say of the place.
    package init(home path: String, fileSystem disk: any FileSystem = PosixFileSystem()) throws(StoreError) {
        let home = try HomeDirectory(path, disk: disk)
        defer { home.close() }
        let keystore = try Keystore(in: home)
        keystoreCopyCount = keystore.readableCopyCount
        protection = keystore.protection
        let file = try home.open(ClockMark.name, [])
        defer { disk.close(file) }
        erasurePromise = disk.erasurePromise(home: home.descriptor, smallFile: file)
        clockMark = ClockMark.read(file, disk)
    }
}
