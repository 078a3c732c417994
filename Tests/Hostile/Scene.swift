import Adversary
import Control
import Cryptography
import Foundation
import Messaging

/// A node under attack, an honest pair that depends on it, and the attackers' knowledge.
final class Scene {
    let node: NodeProcess
    let others: [NodeProcess]
    let pair: HonestPair
    let target: Target
    /// The pair's figures without an attack; `nil` before they are measured.
    var idle: HonestPair.Samples?
    /// Processor seconds per second that the honest pair costs the node.
    var idleLoad = 0.0
    /// A member of the pair and its conversation, where all traffic must go through the node.
    private var relayed: (member: NodeProcess, conversation: String)?

    init(node: NodeProcess, others: [NodeProcess], pair: HonestPair, target: Target) {
        (self.node, self.others, self.pair, self.target) = (node, others, pair, target)
    }

    /// A rendezvous node, two nodes that reach each other only through it, one that dials it, and two attackers among
    /// its peers.
    static func relayed(mayfly: String, directory: String, day: UInt32) throws -> Scene {
        // The advertised port is closed, and over UDP the nodes would soon punch a direct path.
        let hidden = ["--advertise", "tcp://127.0.0.1:9"]
        func node(_ name: String, _ options: [String], _ first: [String] = []) throws -> NodeProcess {
            try NodeProcess(mayfly: mayfly, home: "\(directory)/\(name)", first: first, arguments: options)
        }
        let hub = try node("hub", ["--rendezvous"])
        let uma = try node("uma", ["--no-udp"], hidden)
        let vic = try node("vic", ["--no-udp"], hidden)
        let fay = try node("fay", [])
        let card = try ContactCard(text: Campaign.text(hub.client.call("peer.card", [:])["contact"]))
        guard let endpoint = card.endpoints.first else { throw Failure("the card names no endpoint") }
        let user = try Campaign.text(uma.client.call("peer.card", [:])["contact"])
        _ = try hub.client.call("peer.add", ["name": "uma", "card": .string(user)])
        _ = try fay.client.call("peer.add", ["name": "ann", "card": .string(card.description)])
        _ = try uma.client.call("peer.add", ["name": "hub", "card": .string(card.description)])
        _ = try uma.client.call("peer.set", ["name": "hub", "key": "rendezvous", "value": "on"])
        try reserve(uma)
        let room = try Campaign.room("friends", in: uma)
        let joined = try vic.client.call("join", ["slug": .string(room.slug), "timeout": "20s"])
        guard joined["state"] == "ready" else { throw Failure("the relayed pair did not meet") }
        var target = Target(
            address: NodeAddress(host: endpoint.host, port: endpoint.port), card: card, invite: "", crowded: "",
            sleeping: [], socket: "", day: day)
        for number in 0..<RelayUsers.userCount {
            let enemy = makeIdentity()
            let card = ContactCard(
                key: enemy.publicKey, routingSecret: randomBytes(ContactCard.routingSecretByteCount),
                endpoints: [Endpoint(host: "127.0.0.1", port: 9)])
            let name = "enemy-\(number)"
            _ = try hub.client.call("peer.add", ["name": .string(name), "card": .string(card.description)])
            target.users.append(enemy)
        }
        let pair = HonestPair(ann: uma, bob: vic, carol: fay, conversation: room.id)
        let scene = Scene(node: hub, others: [uma, vic, fay], pair: pair, target: target)
        scene.relayed = (uma, room.id)
        return scene
    }

    private static func reserve(_ node: NodeProcess) throws {
        let end = ContinuousClock.now + .seconds(20)
        while ContinuousClock.now < end {
            let card = try node.client.call("peer.card", [:])
            let endpoints = card["endpoints"]?.arrayValue ?? []
            if endpoints.contains(where: { $0.stringValue?.hasPrefix("relay://") ?? false }) { return }
            usleep(50_000)
        }
        throw Failure("no reservation")
    }

    /// A defect of the pair's path; `nil` if there is none.
    func complaint() throws -> String? {
        guard let relayed else { return nil }
        let answer = try relayed.member.client.call(
            "conversation.members", ["conversation": .string(relayed.conversation)])
        let paths = (answer["members"]?.arrayValue ?? []).compactMap { $0["path"]?.stringValue }
        return paths == ["relayed"] ? nil : "the pair's path is \(paths)"
    }
}
