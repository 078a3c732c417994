import ArgumentParser
import Control
import Glibc

struct RPCCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "rpc", abstract: "Speak JSON-RPC 2.0 over standard input and output.",
        discussion: """
            Serves the methods of the control socket, one request a line; `mayfly schema` lists them. After the end of \
            the input all requests are still answered, and a subscription goes on. The exit code is 8 if the node \
            stops before that.

            Example:
              echo '{"jsonrpc":"2.0","id":1,"method":"status"}' | mayfly rpc
            """)

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws { try connect().pump(from: STDIN_FILENO, to: STDOUT_FILENO) }
}

struct SchemaCommand: NodeCommand {
    static let configuration = CommandConfiguration(
        commandName: "schema", abstract: "Print all commands and JSON-RPC methods, machine-readable.",
        discussion: """
            One JSON object, with and without --json: {"version","commands","methods","events","eventFields","failures"}.

            Example:
              mayfly schema | jq -r '.methods[].name'
            """)

    /// Deep enough for ArgumentParser's description of nested commands.
    private static let depthLimit = 64

    @OptionGroup var global: GlobalOptions

    func perform(_ terminal: Terminal) throws {
        let help = Mayfly._dumpHelp()
        guard let commands = try? JSONReader.read(Array(help.utf8), depthLimit: Self.depthLimit),
            case .object(var schema) = Methods.description
        else { throw ControlError.internalFailure("the description of the commands cannot be read") }
        schema["version"] = .string(ProgramVersion.text)
        schema["commands"] = commands["command"] ?? commands
        terminal.result(.object(schema))
    }
}
