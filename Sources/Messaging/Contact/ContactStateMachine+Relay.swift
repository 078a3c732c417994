import Cryptography

extension ContactStateMachine {
    /// The state of our reservations at this node; `nil` if it is none of our rendezvous nodes.
    package func standing(at rendezvous: PublicKey) -> RelayReservationStateMachine.Standing? {
        remotes[rendezvous]?.rendezvous?.reservation.standing
    }

    package var usesRendezvous: Bool { remotes.contains { $0.value.rendezvous != nil } }

    package var relayPlaces: [RelayPlace] {
        remotes.values.sorted { $0.card.key < $1.card.key }.compactMap { remote in
            guard let rendezvous = remote.rendezvous, rendezvous.reservation.advertised != nil else { return nil }
            return RelayPlace(
                addresses: remote.card.endpoints.filter { $0.relay == nil && $0.port > 0 }, key: remote.card.key,
                routingSecret: remote.card.routingSecret, secret: rendezvous.secret,
                reservations: rendezvous.reservations, isFull: rendezvous.reservation.isFull)
        }
    }

    /// The inbox of a stream that a rendezvous node announces; `nil` for an unknown reservation.
    package func seed(of reservation: ReservationID, at rendezvous: PublicKey) -> RelaySeed? {
        remotes[rendezvous]?.rendezvous?.reservations.first { $0.value == reservation }?.key
    }

    /// Sets the inboxes that need reservations in addition to our card.
    package mutating func want(_ seeds: [RelaySeed]) -> [NodeAction] {
        relaySeeds = [cardSeed] + seeds
        return remotes.keys.sorted().flatMap { want($0) }
    }

    private mutating func want(_ remote: PublicKey) -> [NodeAction] {
        guard let rendezvous = remotes[remote]?.rendezvous else { return [] }
        var labels: [RelaySeed: RelayLabel] = [:]
        for seed in relaySeeds { labels[seed] = rendezvous.labels[seed] ?? seed.label(at: remote) }
        remotes[remote]?.rendezvous?.labels = labels
        defer { noteReservations(at: remote) }
        let actions = remotes[remote]?.rendezvous?.reservation.want(relaySeeds.compactMap { labels[$0] }) ?? []
        return perform(actions, of: remote)
    }

    /// Call after each step of a reservation.
    private mutating func noteReservations(at remote: PublicKey) {
        guard let rendezvous = remotes[remote]?.rendezvous else { return }
        var reservations: [RelaySeed: ReservationID] = [:]
        let advertised = Set(rendezvous.reservation.advertisedLabels)
        for (seed, label) in rendezvous.labels where advertised.contains(label) {
            reservations[seed] = rendezvous.reservations[seed] ?? rendezvous.secret.reservation(label)
        }
        remotes[remote]?.rendezvous?.reservations = reservations
    }

    /// - Returns: a save if the grant has changed.
    private mutating func noteGrant(at remote: PublicKey) -> [NodeAction] {
        let grant = remotes[remote]?.rendezvous?.reservation.advertised
        guard record.granted.first(where: { $0.rendezvous == remote })?.grant != grant else { return [] }
        record.granted.removeAll { $0.rendezvous == remote }
        if let grant { record.granted.append(ContactRecord.Granted(rendezvous: remote, grant: grant)) }
        return [.save(client)]
    }

    /// Sets our rendezvous nodes and releases the reservations at the others.
    /// - Parameter cards: at most ``Limits/rendezvousCount`` are used.
    package mutating func use(rendezvous cards: [ContactCard], _ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        let wanted = cards.filter { $0.key != key.publicKey }.prefix(Limits.rendezvousCount)
        for remote in remotes.keys.sorted() where !wanted.contains(where: { $0.key == remote }) {
            guard let rendezvous = remotes[remote]?.rendezvous else { continue }
            remotes[remote]?.rendezvous = nil
            result += noteGrant(at: remote)
            if rendezvous.reservation.advertised != nil { result.append(.endpointsMayHaveChanged) }
            if let link = remotes[remote]?.link.link { result.append(.forward(link, .relayRequest(.release))) }
            result += release(remote)
        }
        for card in wanted {
            let known = remotes[card.key]
            // Our key is needed to derive reservations.
            guard known?.rendezvous == nil || known?.card != card, !key.isWiped else { continue }
            connect(card, now: turn.now)
            if known?.rendezvous != nil {
                // Its card has changed.
                result.append(.endpointsMayHaveChanged)
            } else {
                let remembered = record.granted.first { $0.rendezvous == card.key }?.grant
                remotes[card.key]?.rendezvous = Rendezvous(
                    reservation: RelayReservationStateMachine(remembered: remembered, now: turn.now),
                    secret: RelaySecret(rendezvous: card.key, user: key.publicKey, own: key))
                result += want(card.key)
                if let link = remotes[card.key]?.link.link { result += reservationLinked(link, to: card.key, turn) }
            }
        }
        return result
    }

    mutating func reservationLinked(_ link: LinkID, to remote: PublicKey, _ turn: Turn) -> [NodeAction] {
        remotes[remote]?.rendezvous?.linkedAt = turn.now
        return perform(remotes[remote]?.rendezvous?.reservation.opened(link, now: turn.now) ?? [], of: remote)
    }

    /// Notes what a step of a reservation has changed.
    mutating func perform(_ actions: [NodeAction], of remote: PublicKey) -> [NodeAction] {
        if !actions.isEmpty { noteReservations(at: remote) }
        return noteGrant(at: remote) + actions
    }

    /// A protocol violation unless it comes from one of our rendezvous nodes. Answers over a replaced link are ignored.
    mutating func receive(_ answer: RelayAnswer, from remote: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction]
    {
        guard let rendezvous = remotes[remote]?.rendezvous else { return [.close(link)] }
        switch answer {
        case .reserved(let grant):
            return perform(remotes[remote]?.rendezvous?.reservation.reserved(grant, on: link) ?? [], of: remote)
        case .refused(let refusal):
            let actions = remotes[remote]?.rendezvous?.reservation.refused(refusal, on: link, now: turn.now)
            return perform(actions ?? [], of: remote)
        case .incoming, .stream:
            guard rendezvous.reservation.isReserved(on: link) else { return [] }
            let wait = answer.isSmall ? remotes[remote]?.smallPieces.note(now: turn.now) : nil
            return [.relayed(link, answer)] + (wait.map { [.pauseReading(link, $0)] } ?? [])
        }
    }

    package mutating func serve(_ terms: RelayTerms, _ turn: Turn) -> [NodeAction] {
        relay.configure(terms, isPeer: turn.node.isNamedPeer)
    }

    package mutating func serve(_ terms: MailboxTerms, _ turn: Turn) -> [NodeAction] {
        mailbox.configure(terms, client, isPeer: turn.node.isNamedPeer)
    }

    /// The shell holds slots of these boxes in memory. They must count and expire also after the contact inbox is
    /// restored from the disk.
    package mutating func count(_ boxes: [BoxID], _ turn: Turn) -> [NodeAction] {
        mailbox.count(boxes, turn)
        return []
    }
}
