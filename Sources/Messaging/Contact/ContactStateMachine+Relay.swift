import Primitives

/// The contact inbox as a user of rendezvous nodes, and as one itself.
extension ContactStateMachine {
    // MARK: Rendezvous nodes of ours

    /// How our reservation at one of them stands; `nil` for a node that is none of ours.
    package func standing(at rendezvous: PublicKey) -> RelayReservationStateMachine.Standing? {
        remotes[rendezvous]?.reservation?.standing
    }

    /// Where we can be reached through them: at one of them after the other, each one's best endpoint first.
    package var relayedEndpoints: [Endpoint] {
        let reserved = remotes.values.sorted { $0.card.key < $1.card.key }.compactMap { remote in
            remote.reservation?.advertised.map { id in
                let address = RelayAddress(
                    key: remote.card.key,
                    routingSecret: remote.card.routingSecret,
                    reservation: id
                )
                return remote.card.endpoints.filter { $0.relay == nil && $0.port > 0 }
                    .map { Endpoint(host: $0.host, port: $0.port, relay: address) }
                    .filter { $0.description.utf8.count <= Limits.endpointByteCount }
            }
        }
        var result: [Endpoint] = []
        for rank in 0..<Limits.relayEndpointCount {
            for endpoints in reserved where rank < endpoints.count && result.count < Limits.relayEndpointCount {
                result.append(endpoints[rank])
            }
        }
        return result
    }

    /// These are our rendezvous nodes from now on; others are told that we need them no longer.
    /// - Parameter cards: at most ``Limits/rendezvousCount`` are used.
    package mutating func use(rendezvous cards: [ContactCard], _ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        let wanted = cards.filter { $0.key != key.publicKey }.prefix(Limits.rendezvousCount)
        for remote in remotes.keys.sorted() where !wanted.contains(where: { $0.key == remote }) {
            guard let reservation = remotes[remote]?.reservation else { continue }
            remotes[remote]?.reservation = nil
            if reservation.advertised != nil { result.append(.endpointsMayHaveChanged) }
            if let link = remotes[remote]?.link.link { result.append(.forward(link, .relayRequest(.release))) }
            if let link = release(remote) { result.append(.close(link)) }
        }
        for card in wanted {
            let known = remotes[card.key]
            guard known?.reservation == nil || known?.card != card else { continue }
            connect(card, now: turn.now)
            if known?.reservation != nil {
                // Its card is another one now.
                result.append(.endpointsMayHaveChanged)
            } else {
                remotes[card.key]?.reservation = RelayReservationStateMachine()
                if let link = remotes[card.key]?.link.link { result += reservationLinked(link, to: card.key, turn) }
            }
        }
        return result
    }

    mutating func reservationLinked(_ link: LinkID, to remote: PublicKey, _ turn: Turn) -> [NodeAction] {
        perform(remotes[remote]?.reservation?.opened(link, now: turn.now) ?? [])
    }

    mutating func advanceReservation(_ remote: PublicKey, _ turn: Turn) -> [NodeAction] {
        perform(remotes[remote]?.reservation?.advance(now: turn.now) ?? [])
    }

    private func perform(_ actions: [RelayReservationStateMachine.Action]) -> [NodeAction] {
        actions.map { action in
            switch action {
            case .ask(let link): .forward(link, .relayRequest(.reserve))
            case .changed: .endpointsMayHaveChanged
            }
        }
    }

    /// From a node that is none of our rendezvous nodes it is against the protocol; a link that was replaced says nothing
    /// any more.
    mutating func receive(_ answer: RelayAnswer, from remote: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction]
    {
        guard let reservation = remotes[remote]?.reservation else { return [.close(link)] }
        switch answer {
        case .reserved(let grant):
            // It follows from our two keys: nobody is advertised under another one's.
            guard grant.reservation == ReservationID(rendezvous: remote, user: key.publicKey, own: key) else {
                return [.close(link)]
            }
            return perform(remotes[remote]?.reservation?.reserved(grant, on: link) ?? [])
        case .refused(let refusal):
            return perform(remotes[remote]?.reservation?.refused(refusal, on: link, now: turn.now) ?? [])
        case .incoming, .stream:
            guard reservation.isReserved(on: link) else { return [] }
            let wait = answer.isSmall ? remotes[remote]?.smallPieces.note(now: turn.now) : nil
            return [.relayed(link, answer)] + (wait.map { [.pauseReading(link, $0)] } ?? [])
        }
    }

    // MARK: This node as one

    /// The configuration or the peers have changed.
    package mutating func serve(_ terms: RelayTerms, _ turn: Turn) -> [NodeAction] {
        relay.configure(terms, isPeer: turn.isNamedPeer)
    }
}
