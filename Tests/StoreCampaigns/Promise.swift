import Store

/// Begin of every campaign: a bucket edge of every tier.
package let campaignStart: Int64 = 1_800_000_000_000 / 7_200_000 * 7_200_000

/// Everything the store has acknowledged, and the possible outcomes of unfinished operations.
package struct Promise {
    package struct Text: Hashable, Sendable {
        package let serial: Int
        package let byteCount: Int

        package var bytes: [UInt8] {
            var bytes = Array("\(serial)|".utf8)
            bytes += [UInt8](repeating: UInt8(ascii: "."), count: max(0, byteCount - bytes.count))
            return bytes
        }

        package static func serial(of bytes: [UInt8]) -> Int? {
            Int(String(decoding: bytes.prefix { $0 != UInt8(ascii: "|") }, as: UTF8.self))
        }
    }

    package struct Version: Hashable, Sendable {
        package let text: Text
        package let tier: Tier
        package let expiresAt: Int64

        package var keyEnds: Int64 {
            let width = tier.bucketWidth
            return (expiresAt + width - 1) / width * width
        }
    }

    package struct Message: Sendable {
        /// Possible versions; never empty.
        package var versions: [Version]
        package var mayBeGone: Bool
        package let isHidden: Bool
        package let place: Int
    }

    package struct Inbox: Sendable {
        package let id: RowID
        /// Its destruction began: it is stored whole or not at all.
        package var mayBeGone = false
        package var messages: [Int: Message] = [:]
        /// Possible states; `nil` for none.
        package var states: [Text?] = [nil]
        package var fuse: Int64?
        /// Fuses that were not acknowledged.
        package var possibleFuses: [Int64] = []
    }

    package struct Note: Sendable {
        package var texts: [Text]
        package var expiresAt: Int64
        package var mayBeGone: Bool
    }

    package var inboxes: [RowID: Inbox] = [:]
    package var destroyedInboxes: Set<RowID> = []
    /// Payloads the store may never return again.
    package var destroyed: Set<Int> = []
    package var tombstones: [Int: Note] = [:]
    package var fanOuts: [Int: Note] = [:]
    /// Secrets that may open the home: passphrases, and `nil` for the key file; the newest last, never empty.
    package var secrets: [String?] = [nil]
    package var formerPassphrases: Set<String> = []
    package var formerKeyFiles: Set<[UInt8]> = []
    package var clock: Int64 = 0
    package var possibleClocks: [Int64] = []
    package var now: Int64 = campaignStart

    package init() {}

    package mutating func destroy(_ id: RowID) {
        guard let inbox = inboxes.removeValue(forKey: id) else { return }
        destroyedInboxes.insert(id)
        for message in inbox.messages.values { destroyed.formUnion(message.versions.map(\.text.serial)) }
        destroyed.formUnion(inbox.states.compactMap { $0?.serial })
    }

    package mutating func erase(_ id: RowID, _ number: Int) {
        guard let message = inboxes[id]?.messages.removeValue(forKey: number) else { return }
        destroyed.formUnion(message.versions.map(\.text.serial))
    }

    /// Before a reap: everything due may go.
    package mutating func expect(expiry moment: Int64) {
        for id in inboxes.keys {
            for number in inboxes[id]?.messages.keys.map({ $0 }) ?? [] {
                let isDue = inboxes[id]?.messages[number]?.versions.contains { $0.expiresAt <= moment } ?? false
                if isDue { inboxes[id]?.messages[number]?.mayBeGone = true }
            }
            let fuses = (inboxes[id]?.possibleFuses ?? []) + [inboxes[id]?.fuse].compactMap { $0 }
            if fuses.contains(where: { $0 <= moment }) { inboxes[id]?.mayBeGone = true }
        }
        for number in tombstones.keys where tombstones[number]?.expiresAt ?? .max <= moment {
            tombstones[number]?.mayBeGone = true
        }
        for number in fanOuts.keys where fanOuts[number]?.expiresAt ?? .max <= moment {
            fanOuts[number]?.mayBeGone = true
        }
        now = max(now, moment)
    }

    /// After a reap that reported no failure.
    /// - Parameter withRecords: Records in unfinished buckets were overwritten as well.
    package mutating func settle(expiry moment: Int64, withRecords: Bool) {
        for (id, inbox) in inboxes {
            if let fuse = inbox.fuse, fuse <= moment {
                destroy(id)
                continue
            }
            for (number, message) in inbox.messages {
                let isGone = message.versions.allSatisfy { withRecords ? $0.expiresAt <= moment : $0.keyEnds <= moment }
                if isGone { erase(id, number) }
            }
        }
        for (number, note) in tombstones where note.expiresAt <= moment {
            tombstones[number] = nil
            destroyed.formUnion(note.texts.map(\.serial))
        }
        for (number, note) in fanOuts where withRecords && note.expiresAt <= moment {
            fanOuts[number] = nil
            destroyed.formUnion(note.texts.map(\.serial))
        }
    }
}

package struct Violation: Error, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }
}
