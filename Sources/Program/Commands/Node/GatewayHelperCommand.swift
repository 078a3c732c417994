import ArgumentParser
import Transport

/// Child process of the node that queries a gateway by UPnP. Hidden from help.
struct GatewayHelperCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: UPnPHelper.command, shouldDisplay: false)

    @Argument(parsing: .captureForPassthrough) var words: [String] = []

    func run() { UPnPHelper.run(words) }
}
