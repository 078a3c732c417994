import Messaging
import NIOCore

/// Codes to say aloud (SpokenCodes.md).
extension Node {
    /// Makes a code that leads to a single-use invite to a conversation of our own.
    /// - Throws: as ``invite(_:lifetime:singleUse:)``, and ``NodeError/code(_:)``.
    package func openCode(_ text: String) throws(NodeError) -> OpenCodes.Entry { try codes.open(text) }

    /// What becomes of a code.
    /// - Throws: ``NodeError/code(_:)`` for one that is not known, or not any more.
    package func whenCodeEnds(_ number: OpenCodes.Number) throws(NodeError) -> EventLoopFuture<CodeOutcome> {
        guard let end = codes.whenEnded(number) else { throw .code(.unknown) }
        return end
    }

    /// Takes a code back; one that has ended stays as it is.
    package func revokeCode(_ number: OpenCodes.Number) { codes.revoke { $0.number == number } }

    /// Takes a code of a conversation back.
    /// - Throws: ``NodeError/code(_:)``.
    package func revokeCode(_ text: String, _ code: String) throws(NodeError) {
        let client = try directory.resolve(text)
        let code = try Self.code(code)
        guard codes.revoke(where: { $0.client == client && $0.code == code }) else { throw .code(.unknown) }
    }

    /// Reads a code.
    /// - Throws: ``NodeError/code(_:)``.
    package nonisolated static func code(_ text: String) throws(NodeError) -> SpokenCode {
        do throws(SpokenCode.Failure) { return try SpokenCode(text) } catch { throw .code(.text(error)) }
    }

    /// Asks for the invite that a code leads to.
    /// - Parameter endpoint: where the code was made; `nil` looks for it on this machine's networks.
    /// - Returns: fails with ``NodeError``.
    package func invite(for code: SpokenCode, at endpoint: Endpoint?) throws(NodeError)
        -> EventLoopFuture<CodeInvite>
    {
        try directory.checkUnlocked()
        return codeJoins.invite(for: code, at: endpoint)
    }

    /// A join by a code's invite has begun: its creator is also dialled where the code has reached it.
    package func dial(_ client: ClientID, _ found: CodeInvite) {
        guard let invite = try? Self.inspect(found.slug), !invite.invite.endpoints.contains(found.endpoint) else {
            return
        }
        core.turn { core.machine.found(client, invite.creatorKey, at: found.endpoint, &$0) }
    }

    /// Where others reach this node directly.
    package var reachableAt: [Endpoint] { network.reachableAt }
}
