import ArgumentParser
import Transport

/// What a node starts to ask a gateway by UPnP: not for people.
struct GatewayHelperCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: UPnPHelper.command, shouldDisplay: false)

    func run() { UPnPHelper.run() }
}
