import Cryptography
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
    private(set) var sightings: [String: PeerSighting] = [:]
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
            kind: .malformed, path: "\(home)/\(PeersFile.fileName)",
            reason: #"the file is gone; for no peers, write {"peers":[]}"#)
    }

    enum Edit {
        /// `before`: the previous peers, if they changed.
        case saved(before: PeersFile?)
        /// The file was edited after ``PeerBook/read(home:)``, and was not overwritten.
        case overtaken
    }

    /// Call ``read(home:)`` first.
    /// - Throws: when two peers would have the same name.
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
            if result[peer.name].map({ $0.at < seen.at }) ?? true { result[peer.name] = seen }
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

/// `peers.json` in the home: the nodes that this node knows by name. Users copy and edit the file.
package struct PeersFile: Hashable, Sendable, Codable {
    package static let fileName = "peers.json"

    package var peers: [Peer]

    package init(peers: [Peer] = []) { self.peers = peers }

    package struct Peer: Hashable, Sendable, Codable {
        package var name: String
        /// The contact card; a peer without one can only be listed.
        package var contact: ContactCard?
        /// Overrides the card's endpoints.
        package var endpoints: [Endpoint]?
        /// Refuses links to our contact inbox; absent means no.
        package var blocked: Bool?
        /// Absent means ``Invitations/ask``.
        package var invitations: Invitations?
        /// Serves as our rendezvous node; absent means no.
        package var rendezvous: Bool?
        /// Serves as our mailbox; absent means no.
        package var mailbox: Bool?

        package init(name: String, contact: ContactCard?, endpoints: [Endpoint]?) {
            self.name = name
            self.contact = contact
            self.endpoints = endpoints
        }

        package var isBlocked: Bool { blocked ?? false }
        package var isRendezvous: Bool { rendezvous ?? false }
        package var isMailbox: Bool { mailbox ?? false }
        package var invitationPolicy: Invitations { invitations ?? .ask }

        /// The card to dial, with our own ``endpoints`` if there are any.
        package var card: ContactCard? {
            guard var card = contact else { return nil }
            if let endpoints, !endpoints.isEmpty { card.endpoints = endpoints }
            return card
        }

        package var allEndpoints: [Endpoint] { endpoints ?? contact?.endpoints ?? [] }
    }

    package enum Invitations: String, Hashable, Sendable, Codable, CaseIterable {
        case ask, accept, refuse

        package init(from decoder: any Decoder) throws { self = try decoder.choice() }
    }

    static func stamp(home: String) -> HomeFile.Stamp { HomeFile.Stamp("\(home)/\(fileName)") }

    /// An absent file is an empty list.
    package static func load(home: String) throws(HomeFileError) -> PeersFile { try read(home: home).file }

    /// - Returns: the peers and the file's bytes; `nil` bytes if the file is absent.
    static func read(home: String) throws(HomeFileError) -> (file: PeersFile, bytes: [UInt8]?) {
        let path = "\(home)/\(fileName)"
        guard let bytes = try HomeFile.read(path, unless: .missing) else { return (PeersFile(), nil) }
        return (try parse(bytes, path: path), bytes)
    }

    package static func parse(_ bytes: [UInt8], path: String) throws(HomeFileError) -> PeersFile {
        let peer = Peer(name: "", contact: nil, endpoints: nil)
        try HomeFile.checkNames(bytes, path: path, known: ["": ["peers"], "peers.*": HomeFile.names(of: peer)])
        let file = try HomeFile.decode(PeersFile.self, bytes, path: path)
        if let (index, reason) = file.firstWrongName {
            throw HomeFileError(
                malformed: reason, at: ["peers", FilePathKey(intValue: index), "name"], bytes, path: path)
        }
        return file
    }

    package var firstWrongName: (index: Int, reason: String)? {
        var names: Set<String> = []
        for (index, peer) in peers.enumerated() {
            guard Self.isName(peer.name) else { return (index, "expected 1 to 64 letters, digits, `.`, `_` or `-`") }
            guard names.insert(peer.name).inserted else { return (index, "two peers are named `\(peer.name)`") }
        }
        return nil
    }

    package func save(home: String) throws(HomeFileError) { try HomeFile.save(self, Self.fileName, home: home) }

    package subscript(name: String) -> Peer? { peers.first { $0.name == name } }

    /// At most 64 letters, digits, `.`, `_` and `-`: safe in shells, logs and file names.
    package static func isName(_ name: String) -> Bool {
        (1...64).contains(name.utf8.count) && name.isAlphanumeric(or: "._-")
    }
}
