import Adversary
import Control
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
        let card = try hub.card()
        try hub.add("uma", try uma.card())
        try fay.add("ann", card)
        try uma.add("hub", card)
        try uma.turnOn("rendezvous", at: "hub")
        try reserve(uma)
        let room = try uma.room("friends")
        try vic.join(room.slug, timeout: "20s")
        var target = Target(address: try NodeAddress(of: card), card: card, day: day)
        for number in 0..<RelayUsers.userCount {
            let enemy = makeIdentity()
            try hub.add("enemy-\(number)", ContactCard.unused(enemy))
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
