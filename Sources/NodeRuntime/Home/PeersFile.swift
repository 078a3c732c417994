import FoundationEssentials
import Messaging

/// `peers.json` in the home: the nodes that this node knows by name. Users copy and edit the file.
package struct PeersFile: Hashable, Sendable, Codable {
    package static let fileName = "peers.json"

    package var peers: [Peer]

    package init(peers: [Peer] = []) { self.peers = peers }

    private enum CodingKeys: String, CodingKey, CaseIterable { case peers }

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

        fileprivate enum CodingKeys: String, CodingKey, CaseIterable {
            case name, contact, endpoints, blocked, invitations, rendezvous, mailbox
        }

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
        let bytes: [UInt8]
        do throws(HomeFileError) { bytes = try HomeFile.read(path) } catch {
            if error.kind == .missing { return (PeersFile(), nil) }
            throw error
        }
        return (try parse(bytes, path: path), bytes)
    }

    package static func parse(_ bytes: [UInt8], path: String) throws(HomeFileError) -> PeersFile {
        let names = ["": CodingKeys.allCases.map(\.rawValue), "peers.*": Peer.CodingKeys.allCases.map(\.rawValue)]
        try HomeFile.checkNames(bytes, path: path, known: names)
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
        (1...64).contains(name.utf8.count)
            && name.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }
}
