import Control
import Glibc
import Messaging
import NIOCore
import NodeRuntime
import Primitives
import Store
import Transport

/// The node's values as the command line's contract has them.
enum NodeView {
    static func timestamp(_ time: Messaging.Timestamp) -> Control.Timestamp {
        Control.Timestamp(milliseconds: time.milliseconds)
    }

    /// Short name of a member: the beginning of its inbox id.
    static func member(_ key: PublicKey) -> String { String(InboxID(key).description.prefix(12)) }

    static func status(_ node: isolated Node, hooks: HookRunner? = nil) -> NodeStatus {
        let status = node.status()
        var checks: [HealthCheck] = [
            HealthCheck(
                name: "erasure",
                state: status.erasure.erasure == .bestEffort ? .warning : .ok,
                message: "\(status.erasure.erasure.rawValue): \(status.erasure.reason)"
            )
        ]
        if status.isReadOnly {
            checks.append(HealthCheck(name: "home", state: .failed, message: "read-only", hint: "mount it writable"))
        }
        if let trouble = status.storageTrouble {
            checks.append(
                HealthCheck(name: "disk", state: .failed, message: "\(trouble)", hint: trouble.advice)
            )
        }
        for damage in status.damage {
            checks.append(
                HealthCheck(name: "store", state: .warning, message: "damaged: \(damage)", hint: "check the disk")
            )
        }
        for failure in node.withoutDatagrams {
            checks.append(
                HealthCheck(
                    name: "UDP",
                    state: .warning,
                    message: "links over TCP alone: \(failure.reason)",
                    hint: "free the port for UDP, or choose another with `mayfly run --listen`"
                )
            )
        }
        for name in node.missingInterfaces {
            checks.append(
                HealthCheck(
                    name: "LAN discovery",
                    state: .warning,
                    message: "there is no interface \(name) with an address now",
                    hint: "see `ip link` for their names"
                )
            )
        }
        checks += node.rendezvousStandings().map(rendezvousCheck)
        checks += (portMappings(node) ?? []).map(portMappingCheck)
        return NodeStatus(
            running: true,
            version: node.options.version,
            pid: Int(getpid()),
            home: node.options.home,
            listen: node.listening.map(\.description),
            locked: status.isLocked,
            erasure: status.erasure.erasure.rawValue,
            protection: status.protection == .keyFile ? "key file" : "passphrase",
            inboxes: InboxCounts(awake: status.awake, sleeping: status.sleeping, unused: status.unused),
            links: status.links,
            outbox: status.outbox,
            nextExpiry: status.nextExpiry.map(timestamp),
            checks: checks,
            hooks: hooks?.counts,
            discovery: node.discovery,
            rendezvous: node.relayService.map { RendezvousCounts($0.counts, $0.terms) },
            portMappings: portMappings(node)
        )
    }

    static func peers(_ node: isolated Node) throws(NodeError) -> [Peer] {
        let file = try node.peersFile()
        let presences = node.peerPresences()
        return file.peers.map { peer($0, presences[$0.name]) }
    }

    static func peer(_ peer: PeersFile.Peer, _ presence: Node.PeerPresence?) -> Peer {
        Peer(
            name: peer.name,
            endpoints: peer.allEndpoints.map(\.description),
            contact: peer.contact?.description,
            blocked: peer.isBlocked,
            invitations: peer.invitationPolicy.rawValue,
            online: presence?.isLinked ?? false,
            lastSeen: presence.map { timestamp($0.at) },
            path: presence?.path?.kind.rawValue,
            rttMs: presence?.rttMilliseconds.map(rounded),
            link: presence?.path.map(link),
            rendezvous: peer.isRendezvous
        )
    }

    private static func link(_ path: LinkPath) -> Link {
        let isIPv6 = if case .v6 = path.address { true } else { false }
        return Link(
            transport: path.transport,
            family: isIPv6 ? "ipv6" : "ipv4",
            address: path.address.ipAddress ?? "",
            since: timestamp(path.openedAt),
            rttMs: path.rttMilliseconds.map(rounded),
            bytesIn: Int64(clamping: path.bytesIn),
            bytesOut: Int64(clamping: path.bytesOut)
        )
    }

    static func rounded(_ milliseconds: Double) -> Double { (milliseconds * 1_000).rounded() / 1_000 }

    static func conversation(_ machine: ConversationStateMachine, _ node: isolated Node) -> Conversation {
        let paths = node.paths(of: machine)
        return Conversation(
            conversation: machine.conversation.description,
            alias: node.alias(of: machine.client),
            name: machine.record.name,
            role: machine.isCreator ? "creator" : "member",
            members: machine.currentMembers.map { one in
                let isOnline = machine.isOnline(one.key)
                return Control.Member(
                    member: member(one.key),
                    profile: one.profile,
                    peer: node.peerName(of: one.key, in: machine.client),
                    online: isOnline,
                    path: isOnline ? paths[one.key]?.kind.rawValue : nil,
                    link: isOnline ? paths[one.key].map(link) : nil
                )
            },
            lifetime: LifetimeValue(machine.lifetime),
            expiresAt: machine.record.schedule.map { timestamp($0.expiresAt) },
            locked: machine.record.group.isLocked,
            state: machine.record.isRemoved ? "removed" : machine.record.schedule == nil ? "ready" : "scheduled",
            inbox: machine.client.description
        )
    }
}
