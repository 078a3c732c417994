import Messaging
import NIOCore
import Primitives
import Transport

/// Dials of the core's, by all ways that there are.
extension Node {
    /// Dials a member, an invite's creator or a contact: directly, and through its rendezvous nodes when that takes long.
    func dial(_ client: ClientID, _ dial: NodeAction.Dial) {
        stirDiscovery()
        var group = DialGroup(client: client, dial: dial)
        guard transport != nil, keys[client] != nil, !isTroubled(client) else { return failed(group) }
        let direct = dial.endpoints.filter { $0.relay == nil }
        group.relays = dial.endpoints.filter { $0.relay != nil }
        let number = nextGroup
        nextGroup += 1
        groups[number] = group
        if !direct.isEmpty { attempt(number, endpoints: direct) }
        guard !group.relays.isEmpty else { return goOn(number) }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(direct.isEmpty ? 0 : Limits.relayHeadStart)) {
            self.assumeIsolated { $0.tryRelay(number) }
        }
    }

    /// Dials through NATs. What else is under way goes on.
    func dial(_ client: ClientID, _ dial: NodeAction.Dial, punchingWith nonce: PunchNonce) {
        let group = DialGroup(client: client, dial: dial)
        guard let transport, keys[client] != nil, !isTroubled(client) else { return failed(group) }
        let number = nextGroup
        nextGroup += 1
        let active = ActiveDial(client: client, dial: dial, group: number)
        guard let known = makeDial(active, []) else { return failed(group) }
        groups[number] = group
        let whole = LinkTransport.Dial(
            endpoints: reachable(dial.endpoints),
            token: known.token,
            identity: known.identity,
            remote: known.remote
        )
        let name = transport.dial(whole, punchingWith: nonce.bytes)
        dials[name] = active
        groups[number]?.numbers.insert(name)
    }

    private func makeDial(_ active: ActiveDial, _ endpoints: [Messaging.Endpoint]) -> LinkTransport.Dial? {
        keys[active.client].map { key in
            LinkTransport.Dial(
                endpoints: endpoints.map { Transport.Endpoint(host: $0.host, port: Int($0.port)) },
                token: { [unowned self] in assumeIsolated { $0.token(for: active) } },
                identity: key,
                remote: active.dial.remote
            )
        }
    }

    private func attempt(_ group: UInt64, endpoints: [Messaging.Endpoint]) {
        guard let transport, let known = groups[group] else { return }
        let active = ActiveDial(client: known.client, dial: known.dial, group: group)
        guard let dial = makeDial(active, endpoints) else { return }
        let number = transport.dial(dial)
        dials[number] = active
        groups[group]?.numbers.insert(number)
    }

    /// Asks the next rendezvous node, unless there is a link by now.
    private func tryRelay(_ number: UInt64) {
        guard !isStopped, let group = groups[number], group.guestDial == nil, let endpoint = group.relays.first else {
            return
        }
        groups[number]?.relays.removeFirst()
        groups[number]?.guestDial = openStream(at: endpoint, for: .dial(number))
    }

    /// There is no stream.
    func streamFailed(_ group: UInt64) {
        groups[group]?.guestDial = nil
        goOn(group)
    }

    /// There is a stream, whose other end has yet to answer.
    func attempt(_ group: UInt64, over end: RelayEnd, _ name: RelayEndName) {
        guard let transport, let known = groups[group] else { return end.channel.fail() }
        groups[group]?.guestDial = nil
        let active = ActiveDial(client: known.client, dial: known.dial, group: group)
        guard let dial = makeDial(active, []) else {
            end.channel.fail()
            return goOn(group)
        }
        let number = transport.dial(dial, over: end.channel)
        dials[number] = active
        groups[group]?.numbers.insert(number)
        relayGuests[name.link]?.dial = number
    }

    /// Of the transport: a node closed before act 2.
    func tokenRefused(_ number: UInt64) {
        guard let active = dials[number], active.dial.route == .member else { return }
        dialTokens[LinkName(client: active.client, remote: active.dial.remote)]?.closedBeforeActTwo()
    }

    /// Of the transport: a way has come to nothing.
    func dialEnded(_ number: UInt64, _ hearing: LinkTransport.TokenHearing) {
        guard !isStopped, !guestDialEnded(number), let active = dials.removeValue(forKey: number) else { return }
        // Over UDP a token that is used up gets no answer.
        if hearing == .silence, active.dial.route == .member {
            dialTokens[LinkName(client: active.client, remote: active.dial.remote)]?.unanswered()
        }
        groups[active.group]?.numbers.remove(number)
        if hearing != .none { groups[active.group]?.isUnknownThere = true }
        goOn(active.group)
    }

    /// The next way is tried when nothing is under way; when there is none, that is the end.
    private func goOn(_ number: UInt64) {
        guard let group = groups[number], group.isIdle else { return }
        guard group.relays.isEmpty else { return tryRelay(number) }
        groups[number] = nil
        failed(group)
    }

    private func failed(_ group: DialGroup) {
        guard !isStopped else { return }
        stirDiscovery()
        // Where there is a link, a tombstone need not be asked.
        let isUnknownThere = group.isUnknownThere && !group.dial.isUpgrade
        turn { core.dialFailed(group.client, to: group.dial.remote, isUnknownThere: isUnknownThere, &$0) }
    }

    /// There is a direct link, whoever has dialled: no relay is asked for another any more.
    func dropRelays(of client: ClientID, to remote: PublicKey) {
        for number in groups.keys.sorted() {
            guard let group = groups[number], group.client == client, group.dial.remote == remote else { continue }
            groups[number]?.relays = []
            groups[number]?.guestDial = nil
            if let guestDial = group.guestDial { cancelStream(guestDial) }
            goOn(number)
        }
    }

    /// There is a link: what else is under way is given up. A direct way that is being dialled is still better than a
    /// relayed link.
    func dialSucceeded(_ active: ActiveDial, _ connection: PeerConnection) {
        guard let group = groups.removeValue(forKey: active.group) else { return }
        if let guestDial = group.guestDial { cancelStream(guestDial) }
        guard !connection.isRelayed else { return }
        for number in group.numbers.sorted() where number != connection.route {
            dials[number] = nil
            transport?.cancelDial(number)
        }
    }
}
