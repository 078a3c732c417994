import Control
import Messaging
import NodeRuntime

enum NetworkView {
    static func netcheck(_ findings: NetworkFindings, isLocked: Bool) -> NetcheckResult {
        NetcheckResult(
            families: findings.families.map(family), datagrams: findings.hasDatagrams,
            portMappings: findings.portMappings.map { states in
                portMappings(states, isLocked: isLocked && !findings.isProbe).map { status in
                    var status = status
                    if findings.isProbe, status.state == .mapped { status.state = .possible }
                    return status
                }
            }, discovery: findings.discovery ?? "off", punching: findings.punching.rawValue,
            reached: findings.isReached, advice: findings.advice)
    }

    private static func family(_ found: NetworkFindings.Family) -> NetcheckFamily {
        NetcheckFamily(
            family: found.isIPv4 ? "ipv4" : "ipv6", route: found.local != nil, local: found.local, udp: found.hasUDP,
            tcp: found.hasTCP, nat: found.behaviour.kind.rawValue, mapping: found.behaviour.mapping.rawValue,
            portPreserved: found.behaviour.preservesPort,
            answers: found.answers.map { answer in
                NetcheckAnswer(
                    rendezvous: answer.rendezvous, address: answer.asked.host, port: Int(answer.asked.port),
                    seenAddress: answer.seen?.host, seenPort: answer.seen.map { Int($0.port) },
                    rttMs: answer.udpMilliseconds.map { PeerView.rounded($0) },
                    tcpMs: answer.tcpMilliseconds.map { PeerView.rounded($0) })
            })
    }
}
