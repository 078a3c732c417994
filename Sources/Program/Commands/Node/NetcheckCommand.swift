import ArgumentParser
import Control

struct NetcheckCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "netcheck", abstract: "Check the NAT of this network, and which paths work.",
        discussion: """
            Asks the known rendezvous nodes at which address they see the running node. Reports for IPv4 and IPv6 \
            whether there is a NAT, of what kind, and what works. The gateway is asked only if port mapping is on, or \
            with --map-ports, which removes its mapping at once. No other host is asked. The NAT's filtering is not \
            measured, because that needs unsolicited datagrams.

            The exit code is 5 when rendezvous nodes are known and none answers.

            Examples:
              mayfly netcheck
              mayfly netcheck --json | jq -r '.families[] | "\\(.family) \\(.nat)"'
            """)

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("How long to wait for answers. Default: 10, with --map-ports 30.", valueName: "seconds"))
    var timeout: Interval?
    @Flag(help: "Ask the gateway for a port mapping, and remove it.") var mapPorts = false
    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let params = NetcheckParams(timeout: timeout, mapPorts: mapPorts ? true : nil)
        let wait = (timeout ?? Interval(milliseconds: 30_000)).withGrace
        let value = try connect().call(Methods.netcheck, params, timeout: wait)
        let result = try understand(value, as: NetcheckResult.self)
        let code = result.reached == false ? FailureKind.unreachable.exitCode : 0
        if terminal.json { terminal.result(value, exitCode: code) } else { show(result, terminal) }
        if code != 0 { throw ExitCode(code) }
    }

    private func show(_ result: NetcheckResult, _ terminal: Terminal) {
        for family in result.families {
            let name = family.family == "ipv4" ? "IPv4" : "IPv6"
            guard family.route else {
                terminal.fields([(name, "no route")])
                continue
            }
            terminal.fields([
                (name, family.local.map(safe) ?? "-"),
                ("  UDP", result.datagrams ? word(family.udp) : "off: this node runs with --no-udp"),
                ("  TCP", word(family.tcp)), ("  NAT", nat(family)),
                ("  port", family.portPreserved.map { $0 ? "kept" : "changed" } ?? "unknown"),
            ])
            terminal.table(
                ["  ASKED", "AT", "SEES US AT", "UDP", "TCP"],
                family.answers.map { answer in
                    [
                        "  " + (answer.rendezvous.map(safe) ?? "a member's"), place(answer.address, answer.port),
                        answer.seenAddress.map { place($0, answer.seenPort ?? 0) } ?? "-",
                        !result.datagrams ? "-" : answer.seenAddress == nil ? "silent" : milliseconds(answer.rttMs),
                        answer.tcpMs == nil ? "fails" : milliseconds(answer.tcpMs),
                    ]
                })
        }
        let mappings = result.portMappings.map { $0.map(\.words) } ?? ["off; --map-ports tries it"]
        terminal.fields(
            mappings.map { ("port mapping", $0) } + [
                ("LAN discovery", safe(result.discovery)), ("hole punching", safe(result.punching)),
            ])
        for sentence in result.advice { terminal.result(safe(sentence)) }
    }

    private func word(_ works: Bool?) -> String { works.map { $0 ? "works" : "no answer" } ?? "unknown" }

    private func nat(_ family: NetcheckFamily) -> String {
        switch family.nat {
        case "none": "none: others see our own address"
        case "unknown" where family.udp == true: "there is one; its kind is unknown: needs a second rendezvous node"
        case "unknown": "unknown"
        default: "\(safe(family.nat)), mapping \(safe(family.mapping))"
        }
    }

    private func place(_ address: String, _ port: Int) -> String {
        address.contains(":") ? "[\(safe(address))]:\(port)" : "\(safe(address)):\(port)"
    }
}
