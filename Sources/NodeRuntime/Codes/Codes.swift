import Messaging
import NIOCore
import Store
import Transport

/// The spoken codes opened by this node (Join.md): connections, invites, and waiting requests. In memory only.
final class Codes: Part {
    private var codes = OpenCodes()
    private var connections: [CodeAttempt: CodeConnection] = [:]
    private var waiting: [OpenCodes.Number: [EventLoopPromise<CodeOutcome>]] = [:]
    private var invites: [OpenCodes.Number: InviteID] = [:]
    private lazy var responder = CodeResponder(shell)
    private var isWatching = false

    /// Opens a code for a single-use invite, which is made when the code is redeemed.
    /// - Throws: also the errors of making an invite.
    func open(_ text: String) throws(NodeError) -> OpenCodes.Entry {
        let (client, conversation) = try shell.directory.checkInvite(text, lifetime: Limits.codeInviteLifetime)
        guard let entry = codes.open(client, conversation, now: now, &random) else {
            throw .failed("\(Limits.codeCount) codes are open already", "wait for one to end: 5 minutes at most")
        }
        if !isWatching {
            isWatching = true
            _ = shell.events.watch { [weak self] _ in self?.look() }
        }
        responder.look()
        core.schedule()
        return entry
    }

    var entries: [OpenCodes.Entry] { codes.entries }

    /// - Returns: `nil` for an unknown code.
    func whenEnded(_ number: OpenCodes.Number) -> EventLoopFuture<CodeOutcome>? {
        if let outcome = codes.outcome(of: number) { return loop.makeSucceededFuture(outcome) }
        guard codes[number] != nil else { return nil }
        let promise = loop.makePromise(of: CodeOutcome.self)
        waiting[number, default: []].append(promise)
        return promise.futureResult
    }

    @discardableResult func revoke(where isMeant: (OpenCodes.Entry) -> Bool) -> Bool {
        let count = codes.entries.count
        perform(codes.end { isMeant($0) ? .revoked : nil })
        return codes.entries.count < count
    }

    /// Ends codes whose conversation is gone or locked; ends all codes if the storage is locked.
    func look() {
        guard !codes.entries.isEmpty else { return }
        perform(codes.end { [self] in reason(toEnd: $0) })
    }

    private func reason(toEnd entry: OpenCodes.Entry) -> CodeOutcome? {
        if store.isLocked { return .locked }
        guard core.machine.conversationID(entry.client) == entry.conversation else {
            // A sleeping conversation does not change.
            return core.machine.isSleeping(entry.client) ? nil : .gone
        }
        guard let machine = core.machine.conversation(entry.client) else { return nil }
        guard let issuer = machine.invites, !shell.explosions.isOver(machine) else { return .gone }
        return issuer.isLocked ? .locked : nil
    }

    func stop() {
        perform(codes.end { _ in .gone })
        responder.stop()
    }

    func isOpen(_ slot: UInt16) -> Bool { codes.isOpen(slot) }

    var nextDeadline: Timestamp? { codes.nextDeadline }

    /// - Parameter looks: also refresh the interfaces; see ``Pace``.
    func advance(looks: Bool) {
        guard !codes.entries.isEmpty else { return }
        perform(codes.advance(now: now))
        look()
        if looks { responder.look() }
    }

    func connect(_ transport: LinkTransport) {
        // Weak: a connection may outlive the node.
        transport.events.code = { [weak self] token in self?.expectation(token) }
        transport.events.codeMessage = { [weak self] connection, message in
            guard let self else { return connection.close() }
            receive(message, on: connection)
        }
        transport.events.codeEnded = { [weak self] connection in self?.ended(connection) }
    }

    /// `nil` if no code with this number is open: the transport closes the connection, as for any unknown token.
    private func expectation(_ token: RoutingToken) -> Int? {
        guard !isStopped, !codes.entries.isEmpty, let greeting = CodeExchange.Greeting(token.bytes) else { return nil }
        look()
        return codes.isOpen(greeting.slot) ? CodeExchange.shareByteCount : nil
    }

    private func receive(_ message: [UInt8], on connection: CodeConnection) {
        guard !isStopped, let greeting = CodeExchange.Greeting(connection.token.bytes) else {
            return connection.close()
        }
        look()
        let attempt = CodeAttempt(connection.id)
        let isFirst = connections.updateValue(connection, forKey: attempt) == nil
        perform(
            isFirst
                ? codes.receive(share: message, greeting, from: attempt, &random)
                : codes.receive(proof: message, greeting, from: attempt))
    }

    private func ended(_ connection: CodeConnection) {
        let attempt = CodeAttempt(connection.id)
        guard connections.removeValue(forKey: attempt) != nil else { return }
        perform(codes.ended(attempt))
    }

    private func perform(_ actions: [OpenCodes.Action]) {
        for action in actions {
            switch action.action {
            case .answer(let attempt, let share):
                connections[attempt]?.answer(share, expecting: CodeExchange.tagByteCount)
            case .deliver(let attempt, let message): connections[attempt]?.deliver(message)
            case .refuse(let attempt):
                // Removed first, so that the closing connection is not reported as a failure.
                connections.removeValue(forKey: attempt)?.close()
            case .makeInvite: if let entry = action.entry { makeInvite(for: entry) }
            case .revokeInvite: if let entry = action.entry { revokeInvite(of: entry) }
            case .ended(let outcome): if let entry = action.entry { ended(entry, outcome) }
            }
        }
    }

    private func makeInvite(for entry: OpenCodes.Entry) {
        do throws(NodeError) {
            let (client, verified, slug) = try shell.directory.invite(
                entry.conversation.description, lifetime: Limits.codeInviteLifetime, singleUse: true)
            invites[entry.number] = verified.invite.id
            shell.commits.whenDurable(client).assumeIsolated().whenComplete { result in
                let isDurable = if case .success = result { true } else { false }
                self.perform(self.codes.made(invite: isDurable ? Array(slug.utf8) : nil, for: entry))
                self.invites[entry.number] = nil
            }
        } catch { perform(codes.made(invite: nil, for: entry)) }
    }

    /// A locked or removed conversation has no invites.
    private func revokeInvite(of entry: OpenCodes.Entry) {
        guard let invite = invites[entry.number], !isStopped else { return }
        _ = try? shell.directory.command(entry.conversation.description) { machine, turn throws(CommandError) in
            try machine.revoke(invite, &turn)
        }
    }

    private func ended(_ entry: OpenCodes.Entry, _ outcome: CodeOutcome) {
        for promise in waiting.removeValue(forKey: entry.number) ?? [] { promise.succeed(outcome) }
        if codes.entries.isEmpty { responder.stop() }
        let kind = Event.Kind.codeEnded(entry.number, outcome)
        shell.events.notify(Event(client: entry.client, conversation: entry.conversation, at: now, kind: kind))
    }
}

/// Answers LAN searches for open codes. Its sockets are open only while a code is open. The responder also works
/// without a LAN discovery setting, but not if the setting is `off`.
final class CodeResponder: Part {
    private var machine = LanCodeResponder()
    private var transport: LanTransport?

    func look() {
        guard !isStopped, let network = environment.lan, let interfaces = services.interfaces(of: network) else {
            return
        }
        let usable = shell.listening.withPorts(interfaces)
        machine.setInterfaces(usable)
        let transport =
            transport
            ?? LanTransport(
                loop: loop, network: network, port: options.lanPort,
                receive: { [weak self] source, bytes in self?.receive(bytes, from: source) },
                // The next call of `look` tries again.
                troubled: { _, _ in })
        self.transport = transport
        transport.update(usable, places: machine.places)
    }

    func stop() {
        transport?.close()
        transport = nil
    }

    private func receive(_ bytes: [UInt8], from source: LanPlace) {
        guard let answer = machine.receive(bytes, from: source, now: now.milliseconds, isOpen: shell.codes.isOpen)
        else { return }
        transport?.send(answer.bytes, from: answer.place, to: answer.source)
    }
}

extension NodeServices {
    /// The interfaces on which this node may be discovered: all, or those that the setting names.
    /// - Returns: `nil` when the setting is `off`.
    func interfaces(of network: any LanNetwork) -> [LanInterface]? {
        switch discovery {
        case .off: nil
        case .lan(let names): (network.interfaces() ?? []).near(named: names.map(Set.init))
        case nil: (network.interfaces() ?? []).near(named: nil)
        }
    }
}
