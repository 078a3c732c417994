import Cryptography
import Glibc
import SimulatedDisk

/// An attacker with the raw disk, the passphrase (here: the key file) and every byte ever written, except overwritten
/// key pages. It follows the specification and shares only the primitives with the store.
package struct Thief {
    /// Every payload ever sealed that can be decrypted now.
    package private(set) var payloads: Set<[UInt8]> = []
    package private(set) var inboxKeys = 0
    package private(set) var bucketKeys = 0
    package private(set) var placesTried = 0
    /// Blocks tried before that hold no key.
    package var known: [[UInt8]] = []
    /// Secrets on the disk: of inboxes, beginning with the control row, and of buckets.
    private(set) var rows: [Secret]
    private(set) var columns: [Secret] = []

    private let sealing: Secret
    private let mixing: Secret
    private let tombstones: Secret
    private let control: Secret
    private let journal: Secret

    /// - Parameter passphrase: `nil` for a home with a key file.
    package init(of disk: SimulatedDisk, passphrase: String?) throws {
        let keystore = disk.files()["/home/keystore"] ?? []
        let thief = passphrase.map { Thief(keystore: keystore, passphrase: $0) }
        guard let thief = thief ?? Thief(keystore: keystore, keyFile: disk.files()["/home/key"] ?? []) else {
            throw Violation("the keystore cannot be opened by its specification")
        }
        self = thief
    }

    package init?(keystore: [UInt8], keyFile: [UInt8]) {
        guard keystore.count >= 144 else { return nil }
        let key = SecretBytes(copying: keyFile)
        self.init(keystore, BLAKE2b.derive(key: key, Array("mayfly key file".utf8), Array(keystore[40..<56])))
    }

    package init?(keystore: [UInt8], passphrase: String) {
        guard keystore.count >= 144 else { return nil }
        let wrapping = try? Argon2id.derive(
            passphrase: SecretBytes(copying: passphrase.utf8), salt: Array(keystore[40..<56]),
            iterations: UInt64(Self.number(keystore, 24, 8)), memoryByteCount: Self.number(keystore, 32, 8))
        guard let wrapping else { return nil }
        self.init(keystore, wrapping)
    }

    private init?(_ keystore: [UInt8], _ wrapping: borrowing SecretBytes) {
        guard
            let opened = try? XChaChaPoly.open(
                keystore[56..<128], key: wrapping, authenticating: Array(keystore[..<56])), opened.count == 32
        else { return nil }
        let root = SecretBytes(copying: opened)
        sealing = Secret(BLAKE2b.derive(key: root, Array("mayfly KS: key pages".utf8)))
        mixing = Secret(BLAKE2b.derive(key: root, Array("mayfly KX: page to secret".utf8)))
        tombstones = Secret(BLAKE2b.derive(key: root, Array("mayfly KT: tombstones".utf8)))
        control = Secret(BLAKE2b.derive(key: root, Array("mayfly KC: control row".utf8)))
        journal = Secret(BLAKE2b.derive(key: root, Array("mayfly KJ: journal".utf8)))
        rows = [control]
    }

    /// Searches every 512-byte offset for keystore copies and key files.
    /// - Returns: The passphrases that open a keystore, and whether a key file is present or opens one.
    package static func opening(_ image: [[UInt8]], passphrases: Set<String>, keyFiles: Set<[UInt8]> = []) -> Set<
        String
    > {
        var found: Set<String> = []
        for blocks in image {
            for offset in stride(from: 0, to: blocks.count, by: 512) {
                if keyFiles.contains(where: { blocks[offset...].starts(with: $0) }) { found.insert("a key file") }
                guard blocks.count >= offset + 144, blocks[offset...].starts(with: Array("MFKEYS1".utf8)) else {
                    continue
                }
                let copy = Array(blocks[offset..<(offset + 144)])
                for passphrase in passphrases where Thief(keystore: copy, passphrase: passphrase) != nil {
                    found.insert(passphrase)
                }
                if keyFiles.contains(where: { Thief(keystore: copy, keyFile: $0) != nil }) {
                    found.insert("a copy of a key file")
                }
            }
        }
        return found
    }

    private static func pageData(_ file: String, _ index: Int, _ header: [UInt8]) -> [UInt8] {
        Array("mayfly \(file)".utf8) + [0] + bytes(UInt64(index)) + header
    }

    private static func bytes(_ value: UInt64) -> [UInt8] {
        (0..<8).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
    }

    private static func number(_ bytes: [UInt8], _ offset: Int, _ count: Int) -> Int {
        guard offset + count <= bytes.count else { return 0 }
        return (0..<count).reversed().reduce(0) { $0 << 8 | Int(bytes[offset + $1]) }
    }

    /// Searches every 512-byte offset of the disk for keys, and tries them on everything ever written.
    /// - Parameters:
    ///   - image: Every block on the disk with its offset in its current or former file.
    ///   - written: Every write ever made.
    ///   - slotCount: Pages are tried at their own place in the file, and at the first `slotCount` places.
    package mutating func search(image: [(offset: Int, bytes: [UInt8])], written: [[UInt8]], slotCount: Int = 0) {
        var rows: [Secret] = [control]
        var columns: [Secret] = []
        defer {
            self.rows += rows.dropFirst()
            self.columns += columns
        }
        for (start, blocks) in image where blocks.count >= 4_096 {
            for offset in stride(from: 0, through: blocks.count - 4_096, by: 512) {
                let isKnown = known.contains { isSame($0, blocks, offset) }
                if isKnown || blocks[offset..<(offset + 64)].allSatisfy({ $0 == 0 }) { continue }
                let page = Array(blocks[offset..<(offset + 4_096)])
                placesTried += 1
                for slot in slotCount > 0 ? Array(0..<slotCount) : [(start + offset) / 4_096] {
                    if let row = open(page, "rows.slots", slot, header: 0) { rows.append(row) }
                    guard page.starts(with: Array("MFCOL1".utf8)) else { continue }
                    if let column = open(page, "columns.slots", slot, header: 64) { columns.append(column) }
                }
                if page.starts(with: Array("MFTOMB1".utf8)) {
                    for slot in slotCount > 0 ? Array(0..<slotCount) : [(start + offset) / 4_096] {
                        openTombstone(page, slot)
                    }
                }
            }
        }
        inboxKeys += rows.count - 1
        bucketKeys += columns.count
        openRecords(rows, columns, written)
    }

    private func isSame(_ left: [UInt8], _ right: [UInt8], _ offset: Int) -> Bool {
        guard left.count == right.count else { return false }
        return left.withUnsafeBytes { left in
            right.withUnsafeBytes { right in
                guard let left = left.baseAddress, let right = right.baseAddress else { return false }
                return memcmp(left + offset, right + offset, 4_096) == 0
            }
        }
    }

    private func open(_ page: [UInt8], _ file: String, _ index: Int, header: Int) -> Secret? {
        let data = Self.pageData(file, index, Array(page[..<header]))
        guard let payload = try? XChaChaPoly.open(page[header...], key: sealing.bytes, authenticating: data) else {
            return nil
        }
        return Secret(BLAKE2b.derive(key: mixing.bytes, data, payload))
    }

    private mutating func openTombstone(_ page: [UInt8], _ index: Int) {
        let data = Self.pageData("tombstones.slots", index, Array(page[..<32]))
        guard let plaintext = try? XChaChaPoly.open(page[32...], key: tombstones.bytes, authenticating: data) else {
            return
        }
        let count = Self.number(plaintext, 20, 2)
        guard plaintext.count >= 22 + count else { return }
        payloads.insert(Array(plaintext[22..<(22 + count)]))
    }

    private mutating func openRecords(_ rows: [Secret], _ columns: [Secret], _ written: [[UInt8]]) {
        var rowOfTag: [[UInt8]: Secret] = [:]
        for row in rows {
            rowOfTag[BLAKE2b.authenticate(key: row.bytes, Array("mayfly row tag".utf8), byteCount: 16)] = row
        }
        var columnOfTag: [[UInt8]: Secret] = [:]
        for column in columns {
            columnOfTag[BLAKE2b.authenticate(key: column.bytes, Array("mayfly column tag".utf8), byteCount: 16)] =
                column
        }
        // Each sidecar and each log's head gives a key if its row and bucket secrets are known.
        var keys: [(key: Secret, data: [UInt8], header: Int)] = []
        for head in written.flatMap(heads) {
            if head.count == 128 {
                guard let row = rowOfTag[Array(head[48..<64])], let column = columnOfTag[Array(head[64..<80])] else {
                    continue
                }
                let both = row.bytes.withBytes { Array($0) } + column.bytes.withBytes { Array($0) }
                let secret = SecretBytes(copying: both)
                let key = BLAKE2b.derive(key: secret, Array("mayfly segment".utf8), Array(head[8..<24]))
                keys.append((Secret(key), head, 52))
            } else {
                for row in rows {
                    let key = BLAKE2b.derive(key: row.bytes, Array("mayfly row log".utf8), head)
                    keys.append((Secret(key), Array("mayfly state".utf8) + head, 0))
                }
            }
        }
        let places = written.map(places)
        // A frame's check identifies its file, so that not every key is tried on every record.
        for (key, data, header) in keys {
            let tag = BLAKE2b.hash(Array("mayfly file".utf8), data, byteCount: 16)
            for (chunk, positions) in zip(written, places) {
                for position in positions {
                    let head = Array(chunk[position..<(position + 8)])
                    let check = tag.withUnsafeBytes { tag in head.withUnsafeBytes { SipHash.hash(key: tag, $0) } }
                    guard Self.bytes(check).elementsEqual(chunk[(position + 8)..<(position + 16)]) else { continue }
                    let length = Self.number(chunk, position, 4)
                    let opened = try? XChaChaPoly.open(
                        chunk[(position + 16)..<(position + 16 + length)], key: key.bytes,
                        authenticating: tag + Self.bytes(UInt64(Self.number(chunk, position + 4, 4))))
                    if let opened, opened.count >= header { payloads.insert(Array(opened[header...])) }
                }
            }
        }
    }

    private static let blockMagic = Array("MFJRNL1".utf8)

    /// Sidecars and file ids in a piece of the disk, including those in journal tables.
    private func heads(_ chunk: [UInt8]) -> [[UInt8]] {
        if chunk.count == 128, chunk.starts(with: Array("MFEXP1".utf8)) { return [chunk] }
        if chunk.count >= 24, chunk.starts(with: Array("MFLOG1".utf8)) { return [Array(chunk[8..<24])] }
        var heads: [[UInt8]] = []
        for start in Self.blocks(chunk) {
            let covered = start + 48 + Self.number(chunk, start + 40, 4)
            let end = covered + Self.number(chunk, start + 44, 4)
            guard end <= chunk.count,
                let table = try? XChaChaPoly.open(
                    chunk[covered..<end], key: journal.bytes, authenticating: Array(chunk[start..<covered]))
            else { continue }
            var position = 0
            while position + 45 <= table.count {
                let form = table[position]
                position += 45
                let count = form == 2 ? 128 : form == 3 ? 16 : 0
                guard position + count <= table.count else { break }
                if count > 0 { heads.append(Array(table[position..<(position + count)])) }
                position += count
            }
        }
        return heads
    }

    private static func blocks(_ chunk: [UInt8]) -> [Int] {
        stride(from: 0, to: chunk.count - 47, by: 4_096).filter { chunk[$0...].starts(with: blockMagic) }
    }

    /// Possible frame offsets: consecutive in a file, anywhere in a former journal.
    private func places(_ chunk: [UInt8]) -> [Int] {
        var found: [Int] = []
        let isJournal = !Self.blocks(chunk).isEmpty
        var position = chunk.starts(with: Array("MFLOG1".utf8)) ? 24 : 0
        while position + 16 <= chunk.count {
            if isJournal, position % 4_096 == 0,
                chunk[position..<min(position + 4_096, chunk.count)].allSatisfy({ $0 == 0 })
            {
                position += 4_096
                continue
            }
            let length = Self.number(chunk, position, 4)
            let isPossible = length >= 40 && position + 16 + length <= chunk.count
            if isPossible { found.append(position) }
            if isJournal { position += 1 } else if isPossible { position += 20 + length } else { break }
        }
        return found
    }
}

/// A reference to a secret, so that arrays can hold it.
final class Secret {
    let bytes: SecretBytes
    init(_ bytes: consuming SecretBytes) { self.bytes = bytes }
}
