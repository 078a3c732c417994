import Cryptography
import Messaging
import NodeRuntime
import Simulation

/// A world whose first machine is a rendezvous node for machines behind NATs: these are reached only through it, or by
/// hole punching.
struct Roads {
    /// Machines that use the rendezvous node.
    private(set) var users: Set<Int> = []
    private(set) var hidden: Set<Int> = []
    /// Their NATs admit any port of an address they have sent to; otherwise only that address and port.
    private(set) var letsPortsIn = false
    /// The NATs remain after the faults.
    private(set) var isLasting = false

    /// All machines reach each other directly.
    static let open = Roads(seed: 0, machines: 0, hasRendezvous: false)

    /// Uses a random stream of its own, so that worlds without a rendezvous node do not change.
    init(seed: UInt64, machines: Int, hasRendezvous: Bool?) {
        var dice = Randomness.seeded(seed &* 0x9e37_79b9_7f4a_7c15 &+ 13)
        guard hasRendezvous ?? dice.chance(35), machines > 2 else { return }
        for index in 1..<machines where dice.chance(80) {
            users.insert(index)
            if dice.chance(70) { hidden.insert(index) }
        }
        letsPortsIn = dice.chance(50)
        isLasting = dice.chance(50)
    }

    var isEmpty: Bool { users.isEmpty }
    static let rendezvous = 0

    mutating func heal() { if !isLasting { hidden = [] } }
}

extension NodeSimulation {
    /// Starts all machines once, so that future peers have each other's cards.
    func exchangeCards() {
        guard !roads.isEmpty || mailbox != nil else { return }
        let acquainted = machines.filter { machine in
            let isOfRoads = !roads.isEmpty && (machine.index == Roads.rendezvous || roads.users.contains(machine.index))
            return isOfRoads || mailbox?.isAcquainted(machine.index) ?? false
        }
        for machine in acquainted { _ = machine.start() }
        // Contact inboxes exist and are durable.
        run(until: time.milliseconds + 5_000)
        for machine in acquainted {
            machine.contactCard = machine.ask { try? $0.card() }
            if let key = machine.contactCard?.key { oracle.contacts[key] = machine.index }
            machine.crash(isPowerCut: false)
            network.stop(machine.index, isPowerCut: false)
            datagrams.stop(machine.index)
        }
        if !roads.isEmpty { count("worlds with a rendezvous node") }
        if let mailbox { count(mailbox.isHostile ? "worlds with a hostile mailbox" : "worlds with a mailbox") }
    }

    func peers(of machine: Machine) -> PeersFile {
        var others = machines.filter { other in
            guard !roads.isEmpty else { return false }
            return machine.index == Roads.rendezvous
                ? roads.users.contains(other.index)
                : roads.users.contains(machine.index) && other.index == Roads.rendezvous
        }
        for other in mailbox?.peers(of: machine.index) ?? [] where !others.contains(where: { $0.index == other }) {
            others.append(machines[other])
        }
        return PeersFile(
            peers: others.compactMap { other in
                guard let card = other.contactCard else { return nil }
                var peer = PeersFile.Peer(name: "m\(other.index)", contact: card, endpoints: nil)
                peer.rendezvous = !roads.isEmpty && other.index == Roads.rendezvous ? true : nil
                peer.mailbox = mailbox?.isMailbox(other.index, of: machine.index) ?? false ? true : nil
                return peer
            })
    }
}
