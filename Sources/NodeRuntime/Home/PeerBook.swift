import Crypto
import Messaging
import NIOCore

/// The peers of `peers.json`, when each was last heard, and the pings that are on their way. On the node's loop alone.
final class PeerBook {
    private(set) var file: PeersFile
    /// The file as it was last looked at; `nil` for a node whose peers do not come from one.
    private var stamp: HomeFile.Stamp?
    /// The file may have been changed since, and have the same stamp.
    private var isStampRecent = false
    /// What was read last; `nil` if the file was not there.
    private var bytes: [UInt8]?
    /// Why the file could not be read at the last look.
    private var failure: HomeFileError?
    private var sightings: [String: PeerSighting] = [:]
    /// When and how the named peers were last linked, by the keys of their contact inboxes; in memory only.
    private(set) var heard: [PublicKey: PeerPresence] = [:]
    let pings = PendingPings()

    init(_ file: PeersFile) { self.file = file }

    /// The peers of a home.
    /// - Throws: when its file cannot be read.
    init(home: String) throws(HomeFileError) {
        // Before the file is read: an edit in between is noticed later.
        let stamp = PeersFile.stamp(home: home)
        (file, bytes) = try PeersFile.read(home: home)
        note(stamp)
    }

    var isFromFile: Bool { stamp != nil }
    var peers: [PeersFile.Peer] { file.peers }
    subscript(name: String) -> PeersFile.Peer? { file[name] }

    /// The peer whose contact inbox has this key.
    func peer(_ key: PublicKey) -> PeersFile.Peer? { file.peers.first { $0.contact?.key == key } }

    // MARK: The file

    private func note(_ stamp: HomeFile.Stamp) {
        self.stamp = stamp
        isStampRecent = stamp.isRecent(at: NodeClock.realtime())
    }

    /// Takes over what somebody has written into the file since it was last read. What cannot be read is refused as a whole:
    /// the peers stay as they are, and nothing overwrites the file. The same holds for a file that is gone: some editors
    /// remove it before they write it again.
    /// - Returns: the file before, if it was another.
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

    /// As ``read(home:)``, if the file may have been changed since the last look. What is wrong is reported once.
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

    /// What has become of an edit.
    enum Edit {
        /// With the file before, if it was another.
        case saved(before: PeersFile?)
        /// Somebody has written the file since ``PeerBook/read(home:)``: it is as they left it.
        case overtaken
    }

    /// To be called after ``read(home:)``.
    /// - Throws: ``NodeError/peerExists(_:)`` when two peers would have one name.
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

    // MARK: When they were heard

    func sighting(_ name: String) -> PeerSighting? { sightings[name] }

    func saw(_ name: String, _ sighting: PeerSighting) { sightings[name] = sighting }

    /// Of links that have ended.
    func noteHeard(_ key: PublicKey, _ presence: PeerPresence) {
        heard[key] = presence
        guard heard.count > peers.count else { return }
        let named = Set(peers.compactMap { $0.contact?.key })
        heard = heard.filter { named.contains($0.key) }
    }

    /// Of the peers that have been heard since the start, by their names: the latest of pings and links.
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

/// A ping on its way.
struct PendingPing {
    let peer: String
    let key: PublicKey
    /// When it was asked for; then when it went out over an open link.
    var sentAt: NIODeadline
    /// When nobody waits for it any more.
    let end: Scheduled<Void>
    let promise: EventLoopPromise<Double>
}

/// The pings that are on their way, by their nonces. A class, because who waits for a ping may ask for another one when it
/// ends.
final class PendingPings {
    private var pings: [UInt64: PendingPing] = [:]

    func add(_ nonce: UInt64, _ ping: PendingPing) { pings[nonce] = ping }

    /// It went out over an open link.
    func sent(_ nonce: UInt64, at time: NIODeadline) { pings[nonce]?.sentAt = time }

    func take(_ nonce: UInt64) -> PendingPing? { pings.removeValue(forKey: nonce) }

    /// Ends the pings to one peer.
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
