import Messaging
import Store

/// Why a request of the user fails.
package enum NodeError: Error {
    case command(CommandError)
    case store(StoreError)
    case homeFile(HomeFileError)
    case invite(InviteSlug.Failure)
    case locked
    /// - Parameter meant: the listed alias or name that is nearest to the text.
    case unknownConversation(String, meant: String? = nil)
    /// - Parameter called: the user's alias.
    case exploded(ConversationID, called: String?)
    case joinFailed(JoinErrorType)
    case stopping
}

extension NodeError {
    static func failed(_ message: String, _ hint: String? = nil) -> Self { .command(.init(.failed, message, hint)) }
    static func notFound(_ message: String, _ hint: String) -> Self { .command(.init(.notFound, message, hint)) }
    static func usage(_ message: String, _ hint: String) -> Self { .command(.init(.usage, message, hint)) }
    static func unreachable(_ message: String, _ hint: String) -> Self { .command(.init(.unreachable, message, hint)) }

    static func unknownMessage(_ text: String) -> Self { notFound("no message `\(text)`", "it may have expired") }

    package static func ambiguous(_ text: String, matches: [String]) -> Self {
        usage("`\(text)` is ambiguous: \(matches.joined(separator: ", "))", "give more characters of the id")
    }

    static let joinCancelled = failed("the join was cancelled")

    static func invalidPeerName(_ name: String) -> Self {
        usage("`\(name)` is not a peer's name", "use 1 to 64 letters, digits, `.`, `_` or `-`")
    }

    static func peerExists(_ name: String) -> Self {
        failed("another peer is named `\(name)`", "remove it with `mayfly peer remove \(name)`, or choose another name")
    }

    package static func peerWithoutCard(_ name: String) -> Self {
        failed(
            "`\(name)` has no contact card", "add it: `mayfly peer remove \(name)`, then `mayfly peer add \(name) CARD`"
        )
    }

    package static func peerBlocked(_ name: String) -> Self {
        failed("`\(name)` is blocked", "`mayfly peer unblock \(name)` first")
    }

    /// Two inboxes have this clientId, or an inbox's state names another one (seed 003).
    static func clientIDMismatch(_ client: ClientID) -> Self {
        failed("clientIdMismatch: two inboxes named \(client)", "the home is damaged")
    }

    /// This connection has no upload with this id.
    package static func unknownUpload(_ text: String) -> Self {
        notFound("there is no upload `\(text)`", "begin with attachment.begin")
    }

    /// The transfer failed, or the file was deleted.
    static func attachmentLost(_ id: MessageID) -> Self {
        failed(
            "the file of message \(id.description.prefix(12)) is not here",
            "the transfer failed, or the file is no longer kept; ask for it again")
    }

    static let unknownCode = Self.command(.init(.notFound, "no such code is open"))

    /// No node on this machine's networks answered.
    package static func noNode(withCode slot: UInt16) -> Self {
        unreachable("no node on this network has a code with number \(slot) open", nameMachine)
    }

    static let nameMachine = "name the machine: `mayfly join CODE --at HOST`"
}
