import Control
import FoundationEssentials
import Messaging
import NIOCore
import NodeRuntime

enum ConversationHandlers {
    static func add(to router: inout NodeRouter) {
        addMembership(&router)
        router.later(Methods.conversationCreate) { node, call in
            let params = call.params
            for name in params.peers ?? [] {
                let (peer, _) = try node.peers.peer(name)
                if peer.isBlocked { throw NodeError.peerBlocked(name) }
                if peer.card == nil { throw NodeError.peerWithoutCard(name) }
            }
            return try node.createConversation(name: params.name, profile: params.profile, alias: params.alias).flatMap
            { [node] made in
                node.assumeIsolated { node in
                    let id = made.conversation.description
                    let tag = (try? node.conversation(made.client.description))?.invites?.tag.description
                    let result = ConversationCreateResult(
                        conversation: id, inbox: made.client.description, alias: node.alias(of: made.client),
                        name: params.name, inviteTag: tag ?? "")
                    return invite(params.peers ?? [], to: id, named: params.name, node).map { result }
                }
            }
        }
        router.on(Methods.conversationList) { node, _ in
            let listed = try node.conversations()
            return ConversationListResult(conversations: listed.map { ConversationView.conversation($0, node) })
        }
        for method in [Methods.conversationShow, Methods.conversationMembers] {
            router.on(method) { node, params in try view(params.conversation, node) }
        }
        router.durably(Methods.conversationClose) { node, params in
            try node.close(params.conversation)
            return try view(params.conversation, node)
        }
        router.reaching(
            Methods.conversationLeave, { $0.conversation },
            { node, params in
                var left = try view(params.conversation, node)
                _ = try node.leave(params.conversation)
                left.state = "left"
                return node.whenCommitted().map { [left] in left }
            })
        router.durably(Methods.conversationLock) { node, params in
            try node.setLocked(params.conversation, true)
            return try view(params.conversation, node)
        }
        router.durably(Methods.conversationUnlock) { node, params in
            try node.setLocked(params.conversation, false)
            return try view(params.conversation, node)
        }
    }

    private static func view(_ conversation: String, _ node: isolated Node) throws(NodeError) -> Conversation {
        ConversationView.conversation(try node.conversation(conversation), node)
    }

    private static func addMembership(_ router: inout NodeRouter) {
        router.durably(Methods.conversationAlias) { node, params in
            let client = try node.setAlias(params.conversation, to: params.alias)
            return try view(client.description, node)
        }
        router.durably(Methods.conversationRename) { node, params in
            let client = try node.conversation(params.conversation).client
            try node.rename(params.conversation, to: params.name)
            return try view(client.description, node)
        }
        router.durably(Methods.conversationProfile) { node, params in
            try node.setProfile(params.conversation, to: params.profile)
            return try view(params.conversation, node)
        }
        router.durably(Methods.conversationRemove) { node, params in
            try node.removeMember(params.conversation, params.member)
            return try view(params.conversation, node)
        }
    }

    /// Sends a single-use invite to each peer's contact inbox.
    private static func invite(_ peers: [String], to id: String, named name: String?, _ node: isolated Node)
        -> EventLoopFuture<Void>
    {
        EventLoopFuture.andAllSucceed(
            peers.map { peer in
                do {
                    return try node.invite(id, lifetime: Limits.inviteLifetime, singleUse: true).flatMapThrowing {
                        [node] invite, slug in
                        try node.assumeIsolated { node in
                            try node.noteInvitation(invite.invite.id, of: id, to: peer)
                            try node.peers.sendInvitation(slug, invite: invite, name: name, to: peer)
                        }
                    }
                } catch { return node.loop.makeFailedFuture(error) }
            }, on: node.loop)
    }
}

enum PeerHandlers {
    static func add(to router: inout NodeRouter) {
        router.on(Methods.peerAdd) { node, params in
            let endpoints = try EndpointOption.endpoints(params.endpoints ?? [], option: "--endpoint")
            _ = try node.peers.add(params.name, card: params.card, endpoints: endpoints)
            return try peer(params.name, node)
        }
        router.on(Methods.peerList) { node, _ in PeerListResult(peers: try PeerView.peers(node)) }
        router.on(Methods.peerShow) { node, params in try peer(params.name, node) }
        router.on(Methods.peerRemove) { node, params in
            try node.peers.remove(params.name)
            return Acknowledged()
        }
        router.on(Methods.peerBlock) { node, params in
            try node.peers.block(params.name)
            return try peer(params.name, node)
        }
        router.on(Methods.peerUnblock) { node, params in
            _ = try node.peers.change(params.name) { $0.blocked = nil }
            return try peer(params.name, node)
        }
        router.on(Methods.peerSet) { node, params in
            func isOn() throws(ControlError) -> Bool {
                guard ["on", "off"].contains(params.value) else {
                    throw ControlError(.usage, "\(params.key): `\(params.value)` is not one of on, off")
                }
                return params.value == "on"
            }
            switch params.key {
            case "invitations":
                guard let value = PeersFile.Invitations(rawValue: params.value) else {
                    throw ControlError(.usage, "invitations: `\(params.value)` is not one of ask, accept, refuse")
                }
                _ = try node.peers.change(params.name) { $0.invitations = value }
            case "endpoints":
                let endpoints = try EndpointOption.endpoints(
                    params.value.split(separator: ",").map(String.init), option: "endpoints")
                _ = try node.peers.change(params.name) { $0.endpoints = endpoints.isEmpty ? nil : endpoints }
            case "rendezvous": try node.peers.setRendezvous(params.name, try isOn())
            case "mailbox": try node.peers.setMailbox(params.name, try isOn())
            default:
                throw ControlError(
                    .usage, "`\(params.key)` cannot be set", hint: "keys: invitations, endpoints, rendezvous, mailbox")
            }
            return try peer(params.name, node)
        }
        router.later(Methods.peerPing) { node, call in
            let params = call.params
            let timeout = try positiveTime(params.timeout) ?? 10_000
            return try node.peers.ping(params.name, timeout: timeout).flatMapThrowing { [node] _ in
                try node.assumeIsolated { try peer(params.name, $0) }
            }
        }
        router.on(Methods.peerCard) { node, _ in
            let card = try node.card()
            return PeerCardResult(
                name: node.configuredName, endpoints: card.endpoints.map(\.description), contact: card.description)
        }
        router.on(Methods.peerExport) { node, _ in
            let encoded = try JSONEncoder().encode(try node.peers.file())
            return PeerExportResult(document: try JSONReader.read(encoded))
        }
        router.on(Methods.peerImport) { node, params in
            let file: PeersFile
            do { file = try JSONDecoder().decode(PeersFile.self, from: Data(params.document.utf8)) } catch let error
                as DecodingError
            {
                let (field, message) = words(error)
                throw ControlError(
                    .usage, "this is not a peers file: `\(field)` \(message)", hint: "see peers.example.json",
                    field: field)
            }
            try node.peers.take(file)
            return PeerImportResult(peers: try PeerView.peers(node))
        }
    }

    private static func peer(_ name: String, _ node: isolated Node) throws(NodeError) -> Peer {
        PeerView.peer(try node.peers.peer(name).0, node.peers.presences()[name])
    }

    private static func words(_ error: DecodingError) -> (field: String, message: String) {
        func place(_ path: [any CodingKey]) -> String {
            let text = path.map { key in key.intValue.map { "[\($0)]" } ?? ".\(key.stringValue)" }.joined()
            return String(text.drop { $0 == "." })
        }
        switch error {
        case .keyNotFound(let key, let context): return (place(context.codingPath + [key]), "is missing")
        case .typeMismatch(_, let context), .valueNotFound(_, let context):
            return (place(context.codingPath), "has the wrong type")
        case .dataCorrupted(let context): return (place(context.codingPath), context.debugDescription)
        @unknown default: return ("", "does not fit")
        }
    }
}
