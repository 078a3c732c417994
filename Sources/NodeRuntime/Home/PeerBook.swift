import Crypto
import Messaging
import NIOCore

/// The peers of `peers.json`, when each was last heard, and pending pings. On the node's loop alone.
final class PeerBook {
    private(set) var file: PeersFile
    /// The file's stamp at the last look; `nil` if the peers do not come from a file.
    private var stamp: HomeFile.Stamp?
    /// A later edit may have the same stamp.
    private var isStampRecent = false
    /// The file's bytes at the last read; `nil` if it was absent.
    private var bytes: [UInt8]?
    private var failure: HomeFileError?
    private var sightings: [String: PeerSighting] = [:]
    /// The last link of each named peer, by the key of its contact inbox; in memory only.
    private(set) var heard: [PublicKey: PeerPresence] = [:]
    let pings = PendingPings()

    init(_ file: PeersFile) { self.file = file }

    init(home: String) throws(HomeFileError) {
        // Taken before the read, so that an edit in between is noticed later.
        let stamp = PeersFile.stamp(home: home)
        (file, bytes) = try PeersFile.read(home: home)
        note(stamp)
    }

    var isFromFile: Bool { stamp != nil }
    var peers: [PeersFile.Peer] { file.peers }
    subscript(name: String) -> PeersFile.Peer? { file[name] }

    func peer(_ key: PublicKey) -> PeersFile.Peer? { file.peers.first { $0.contact?.key == key } }

    // MARK: The file

    private func note(_ stamp: HomeFile.Stamp) {
        self.stamp = stamp
        isStampRecent = stamp.isRecent(at: NodeClock.realtime())
    }

    /// Takes over edits of the file. If the file is invalid, the peers stay unchanged and nothing overwrites the file.
    /// The same holds for a missing file, since some editors remove a file before they write it.
    /// - Returns: the peers before, if they changed.
    func read(home: String) throws(NodeError) -> PeersFile? {
        guard stamp != nil else { return nil }
        let now = PeersFile.stamp(home: home)
        let read: (file: PeersFile, bytes: [UInt8]?)
        do throws(HomeFileError) {
            read = try PeersFile.read(home: home)
            if read.bytes == nil, bytes != nil { throw Self.gone(home: home) }
        } catch { throw .homeFile(error) }
        note(now)
        bytes = read.bytes
        failure = nil
        return take(read.file)
    }

    /// ``read(home:)`` if the file may have changed since the last look. Reports an error once.
    func readIfEdited(home: String) throws(NodeError) -> PeersFile? {
        guard let stamp else { return nil }
        let now = PeersFile.stamp(home: home)
        guard now != stamp || isStampRecent else { return nil }
        note(now)
        do throws(NodeError) { return try read(home: home) } catch {
            guard case .homeFile(let failure) = error, failure == self.failure else {
                if case .homeFile(let failure) = error { self.failure = failure }
                throw error
            }
            return nil
        }
    }

    private static func gone(home: String) -> HomeFileError {
        HomeFileError(
            kind: .malformed, path: "\(home)/\(PeersFile.fileName)", line: nil,
            reason: #"the file is gone; for no peers, write {"peers":[]}"#)
    }

    enum Edit {
        /// `before`: the previous peers, if they changed.
        case saved(before: PeersFile?)
        /// The file was edited after ``PeerBook/read(home:)``, and was not overwritten.
        case overtaken
    }

    /// Call ``read(home:)`` first.
    /// - Throws: ``NodeError/peerExists(_:)`` when two peers would have the same name.
    func edit(home: String, _ edit: (inout [PeersFile.Peer]) -> Void) throws(NodeError) -> Edit {
        var changed = file
        edit(&changed.peers)
        if let (index, _) = changed.firstWrongName { throw .peerExists(changed.peers[index].name) }
        let new = HomeFile.encode(changed)
        do throws(HomeFileError) {
            if stamp == nil {
                try changed.save(home: home)
            } else {
                guard try HomeFile.replace(PeersFile.fileName, with: new, over: bytes, home: home) else {
                    return .overtaken
                }
                note(PeersFile.stamp(home: home))
                bytes = new
            }
        } catch { throw .homeFile(error) }
        return .saved(before: take(changed))
    }

    private func take(_ file: PeersFile) -> PeersFile? {
        guard file != self.file else { return nil }
        let before = self.file
        self.file = file
        for name in sightings.keys.sorted() where file[name]?.contact != before[name]?.contact { sightings[name] = nil }
        return before
    }

    // MARK: Last heard

    func sighting(_ name: String) -> PeerSighting? { sightings[name] }

    func saw(_ name: String, _ sighting: PeerSighting) { sightings[name] = sighting }

    func noteHeard(_ key: PublicKey, _ presence: PeerPresence) {
        heard[key] = presence
        guard heard.count > peers.count else { return }
        let named = Set(peers.compactMap { $0.contact?.key })
        heard = heard.filter { named.contains($0.key) }
    }

    /// The latest ping or link of each peer heard since the start, by peer name.
    var lastHeard: [String: PeerPresence] {
        var result = sightings.mapValues { seen in
            PeerPresence(at: seen.at, isLinked: false, rttMilliseconds: seen.rttMilliseconds, path: seen.path)
        }
        for peer in peers {
            guard let key = peer.contact?.key, let seen = heard[key] else { continue }
            guard let known = result[peer.name], known.at >= seen.at else {
                result[peer.name] = seen
                continue
            }
        }
        return result
    }
}

struct PendingPing {
    let peer: String
    let key: PublicKey
    /// When the ping was requested; later, when it was sent over an open link.
    var sentAt: NIODeadline
    let end: Scheduled<Void>
    let promise: EventLoopPromise<Double>
}

/// Pending pings, by nonce. A class, because the completion of one ping may start another.
final class PendingPings {
    private var pings: [UInt64: PendingPing] = [:]

    func add(_ nonce: UInt64, _ ping: PendingPing) { pings[nonce] = ping }

    func sent(_ nonce: UInt64, at time: NIODeadline) { pings[nonce]?.sentAt = time }

    func take(_ nonce: UInt64) -> PendingPing? { pings.removeValue(forKey: nonce) }

    func end(to key: PublicKey, _ error: NodeError) {
        for nonce in pings.keys.sorted() where pings[nonce]?.key == key { take(nonce)?.promise.fail(error) }
    }

    func endAll(_ error: NodeError) {
        let ended = pings.values
        pings = [:]
        for ping in ended {
            ping.end.cancel()
            ping.promise.fail(error)
        }
    }
}

package struct PeerPresence: Sendable {
    /// When the peer was last heard; now, while a link is open.
    package var at: Timestamp
    /// A link is open to its contact inbox, or to a member that joined by an invite sent to the peer.
    package var isLinked: Bool
    package var rttMilliseconds: Double?
    package var path: LinkPath?
}

package struct ReceivedInvitation {
    package var id: Messaging.MessageID
    /// The peer's name; `nil` if the sender is not in `peers.json`.
    package var from: String?
    package var slug: String
    package var name: String?
    package var receivedAt: Timestamp
}

/// The last ping answered by a named peer.
package struct PeerSighting: Sendable {
    var at: Timestamp
    /// From ping to pong, over an open link.
    var rttMilliseconds: Double
    var path: LinkPath?
}
