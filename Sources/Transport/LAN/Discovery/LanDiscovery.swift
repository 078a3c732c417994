/// Finds peers of a conversation on the local network (Discovery.md, "The machine"). A check follows soon after any
/// event that may make a peer missing.
///
/// Without I/O: it gets the time, random numbers, interfaces and datagrams, and returns datagrams to send and peers
/// found. The owner numbers the pairs. `now` is in milliseconds since 1970 and never goes back.
package struct LanDiscovery: Sendable {
    private enum State: Hashable, Sendable {
        case quiet
        /// Announcing. `at`: the next announcement; `wait`: the interval after it.
        case due(at: Int64, wait: Int64)
    }

    package enum Action: Hashable, Sendable {
        /// Multicast from one of our addresses.
        case announce([UInt8], from: LanPlace)
        case answer([UInt8], from: LanPlace, to: LanPlace)
        /// The other inbox of a pair announces this port.
        case found(UInt64, LanPlace, port: UInt16)
    }

    package struct Counts: Hashable, Sendable {
        /// Dropped by the rate limit.
        package var dropped: UInt64 = 0
        /// Malformed, or from a foreign network.
        package var malformed: UInt64 = 0
        /// Without an entry for us.
        package var foreign: UInt64 = 0
        /// With a tag of ours and a wrong proof: replayed from elsewhere.
        package var forged: UInt64 = 0
    }

    private struct Pair: Sendable {
        /// The key of the peer's announcements; `nil` if it does not look for us.
        let listening: LanSecret?
        /// The key of our announcements; `nil` while we do not look for the peer.
        var announcing: LanSecret?
        var found: (source: LanPlace, port: UInt16, at: Int64)?
    }

    /// An announcement of ours that may be answered.
    private struct Question: Sendable {
        let nonce: UInt64
        let at: Int64
        let pairs: [UInt64: UInt64]
    }

    private var state = State.quiet
    private var pairs: [UInt64: Pair] = [:]
    /// Pairs beyond the limit; the lowest number is next.
    private var refused: [UInt64: Pair] = [:]
    private var tags: LanTags
    private var interfaces: [LanInterface] = []
    private var questions: [Question] = []
    private var announcedAt: Int64?
    /// Time of the next check for missing peers.
    private var looksAt: Int64?
    /// Peers missing at the last check and without a link since.
    private var known: Set<UInt64> = []
    /// An address appeared that has not announced yet.
    private var hasNewPlace = false
    /// The last pair of the previous announcement, if not all pairs fitted.
    private var lastAnnounced: UInt64?
    private var heard = Allowances<IPAddress>(
        burst: LanLimits.sourceBurst, interval: LanLimits.sourceInterval, totalBurst: LanLimits.totalBurst,
        totalInterval: LanLimits.totalInterval)
    private var answered = Allowances<IPAddress>(
        burst: LanLimits.answerBurst, interval: LanLimits.answerInterval, totalBurst: LanLimits.answerTotalBurst,
        totalInterval: LanLimits.answerTotalInterval)
    package private(set) var counts = Counts()

    package init(now: Int64) { tags = LanTags(slot: Self.slot(now)) }

    static func slot(_ now: Int64) -> Int64 { now / LanLimits.slotLength }

    package var nextDeadline: Int64? {
        switch state {
        case .quiet: looksAt
        case .due(let at, _): min(at, looksAt ?? at)
        }
    }

    /// The addresses that announce, in a fixed order.
    package var places: [LanPlace] { interfaces.places }

    package var pairCount: Int { pairs.count }

    /// Listens for the other inbox of a pair. Replaces an earlier pair with this number.
    /// - Parameters:
    ///   - listening: `nil` if the peer does not know us yet and so does not look for us.
    ///   - announcing: `nil` while our inbox sleeps and does not look for the peer.
    package mutating func add(_ number: UInt64, listening: LanSecret?, announcing: LanSecret?) {
        forget(number)
        enter(number, Pair(listening: listening, announcing: announcing))
    }

    private mutating func enter(_ number: UInt64, _ pair: Pair) {
        guard pairs.count < LanLimits.pairCount else {
            refused[number] = pair
            return
        }
        pairs[number] = pair
        if let listening = pair.listening { tags.add(number, listening) }
    }

    /// `nil` stops announcing to the pair.
    package mutating func setAnnouncing(_ number: UInt64, _ announcing: LanSecret?) {
        pairs[number]?.announcing = announcing
        refused[number]?.announcing = announcing
    }

    package mutating func remove(_ number: UInt64) {
        forget(number)
        guard pairs.count < LanLimits.pairCount, let next = refused.keys.min() else { return }
        if let pair = refused.removeValue(forKey: next) { enter(next, pair) }
    }

    private mutating func forget(_ number: UInt64) {
        known.remove(number)
        refused[number] = nil
        if let listening = pairs.removeValue(forKey: number)?.listening { tags.remove(number, listening) }
    }

    /// Schedules a check, after an event that may make a peer missing.
    package mutating func stir(now: Int64, using random: inout some RandomNumberGenerator) {
        let half = LanLimits.gathering / 2
        let soon = now + half + Int64(random.next(upperBound: UInt64(half)))
        let at = max(soon, announcedAt.map { $0 + LanLimits.waitFirst } ?? soon)
        looksAt = min(looksAt ?? at, at)
    }

    /// A new address can be used.
    package mutating func placeOpened(now: Int64, using random: inout some RandomNumberGenerator) {
        hasNewPlace = true
        stir(now: now, using: &random)
    }

    /// The pair has a link. If it is lost, the peer counts as newly missing.
    package mutating func linked(_ number: UInt64) { known.remove(number) }

    /// Sets the machine's interfaces; at most ``LanLimits/interfaceCount`` are used.
    package mutating func setInterfaces(
        _ all: [LanInterface], now: Int64, using random: inout some RandomNumberGenerator
    ) {
        let before = Set(places)
        interfaces = all.sorted { ($0.index, $0.name) < ($1.index, $1.name) }.prefix(LanLimits.interfaceCount).map {
            var interface = $0
            // Addresses without a listener still tell which sources are on-link.
            let usable = interface.addresses.filter { $0.address.isUnicast && !$0.address.isLoopback }
            let announced = usable.filter { $0.port != nil }.prefix(LanLimits.addressCount)
            interface.addresses = announced + usable.filter { $0.port == nil }
            return interface
        }
        guard !Set(places).subtracting(before).isEmpty else { return }
        hasNewPlace = true
        stir(now: now, using: &random)
    }

    /// Announces when due. `missing`, the pairs without a link, is called only then.
    package mutating func advance(now: Int64, missing: () -> [UInt64], using random: inout some RandomNumberGenerator)
        -> [Action]
    {
        move(to: now)
        let isDue = if case .due(let at, _) = state { at <= now } else { false }
        guard isDue || looksAt.map({ $0 <= now }) ?? false else { return [] }
        looksAt = nil
        let places = places
        let missing = Set(places.isEmpty ? [] : missing().filter { pairs[$0]?.announcing != nil })
        let isNew = hasNewPlace || !missing.subtracting(known).isEmpty
        known = missing
        guard !missing.isEmpty else {
            state = .quiet
            return []
        }
        guard isNew || isDue else { return [] }
        hasNewPlace = false
        var wait = LanLimits.waitFirst
        if !isNew, case .due(_, let longer) = state { wait = longer }
        let jitter = Int64(random.next(upperBound: UInt64(wait / 2)))
        state = .due(at: now + wait * 3 / 4 + jitter, wait: min(wait * 2, LanLimits.waitLongest))
        announcedAt = now
        return announce(turns(missing.sorted()), from: places, now: now, using: &random)
    }

    /// The pairs of the next announcement; the others follow in the next ones.
    private mutating func turns(_ missing: [UInt64]) -> [UInt64] {
        guard missing.count > LanLimits.announcedCount else {
            lastAnnounced = nil
            return missing
        }
        let start = lastAnnounced.flatMap { last in missing.firstIndex { $0 > last } } ?? 0
        let result = (missing[start...] + missing[..<start]).prefix(LanLimits.announcedCount)
        lastAnnounced = result.last
        return Array(result)
    }

    private mutating func announce(
        _ numbers: [UInt64], from places: [LanPlace], now: Int64, using random: inout some RandomNumberGenerator
    ) -> [Action] {
        let slot = Self.slot(now)
        var result: [Action] = []
        // Pad with dummy datagrams to a power of two, as with entries: observers must not count missing peers.
        for index in 0..<Self.datagramCount(numbers.count) {
            let start = min(index * LanLimits.entriesMost, numbers.count)
            let part = numbers[start..<min(start + LanLimits.entriesMost, numbers.count)]
            // With several datagrams, each one is full.
            let isOnly = numbers.count <= LanLimits.entriesMost
            let nonce: UInt64 = random.next()
            var asked: [UInt64: UInt64] = [:]
            let secrets = part.compactMap { number in pairs[number]?.announcing.map { (number, $0) } }
            for (number, secret) in secrets { asked[secret.tag(slot: slot)] = number }
            questions.append(Question(nonce: nonce, at: now, pairs: asked))
            let filling = isOnly ? 0 : LanLimits.entriesMost - secrets.count
            let strange = (0..<filling).map { _ in LanDatagram.Entry(tag: random.next(), proof: random.next()) }
            for place in places {
                let entries = secrets.map { _, secret in
                    LanDatagram.Entry(
                        tag: secret.tag(slot: slot),
                        proof: secret.proof(slot: slot, nonce: nonce, port: place.port, address: place.address))
                }
                let datagram = LanDatagram(
                    .announcement, port: place.port, nonce: nonce, entries: entries + strange, using: &random)
                result.append(.announce(datagram.bytes, from: place))
            }
        }
        questions.removeFirst(max(0, questions.count - LanLimits.questionCount))
        return result
    }

    /// A power of two.
    private static func datagramCount(_ count: Int) -> Int {
        var result = 1
        while result * LanLimits.entriesMost < count { result *= 2 }
        return result
    }

    private mutating func move(to now: Int64) {
        tags.move(
            to: Self.slot(now),
            pairs.lazy.compactMap { number, pair in pair.listening.map { (key: number, secret: $0) } })
        questions.removeAll { now - $0.at > LanLimits.questionLifetime }
    }

    package mutating func receive(
        _ bytes: [UInt8], from source: LanPlace, now: Int64, using random: inout some RandomNumberGenerator
    ) -> [Action] {
        guard heard.take(source.address, now: now) else {
            counts.dropped += 1
            return []
        }
        guard let interface = interfaces.first(where: { $0.index == source.interface }),
            interface.isNear(source.address), source.port != 0, let datagram = LanDatagram(bytes)
        else {
            counts.malformed += 1
            return []
        }
        move(to: now)
        switch datagram.kind {
        case .announcement: return receive(announcement: datagram, from: source, now: now, using: &random)
        case .answer: return receive(answer: datagram, from: source, now: now)
        }
    }

    private mutating func receive(
        announcement: LanDatagram, from source: LanPlace, now: Int64, using random: inout some RandomNumberGenerator
    ) -> [Action] {
        // Our own announcements come back, because other nodes on this machine get them.
        guard !questions.contains(where: { $0.nonce == announcement.nonce }) else { return [] }
        var result: [Action] = []
        var entries: [LanDatagram.Entry] = []
        var isForged = false
        let place = places.first { $0.interface == source.interface && $0.address.isIPv4 == source.address.isIPv4 }
        for entry in announcement.entries {
            guard let match = tags.match(entry.tag), let secret = pairs[match.pair]?.listening else { continue }
            let proof = secret.proof(
                slot: match.slot, nonce: announcement.nonce, port: announcement.port, address: source.address)
            guard proof == entry.proof else {
                isForged = true
                continue
            }
            result += found(match.pair, at: source, port: announcement.port, now: now)
            if let place {
                let proof = secret.answerProof(nonce: announcement.nonce, port: place.port, address: place.address)
                entries.append(LanDatagram.Entry(tag: entry.tag, proof: proof))
            }
        }
        if isForged { counts.forged += 1 } else if result.isEmpty, entries.isEmpty { counts.foreign += 1 }
        guard let place, !entries.isEmpty, answered.take(source.address, now: now) else { return result }
        // Never larger than the question: a subset of its entries.
        let answer = LanDatagram(.answer, port: place.port, nonce: announcement.nonce, entries: entries, using: &random)
        return result + [.answer(answer.bytes, from: place, to: source)]
    }

    private mutating func receive(answer: LanDatagram, from source: LanPlace, now: Int64) -> [Action] {
        guard let question = questions.first(where: { $0.nonce == answer.nonce }) else {
            counts.foreign += 1
            return []
        }
        var result: [Action] = []
        var isForged = false
        for entry in answer.entries {
            guard let number = question.pairs[entry.tag], let secret = pairs[number]?.announcing else { continue }
            let proof = secret.answerProof(nonce: answer.nonce, port: answer.port, address: source.address)
            if proof == entry.proof {
                result += found(number, at: source, port: answer.port, now: now)
            } else {
                isForged = true
            }
        }
        if isForged { counts.forged += 1 }
        return result
    }

    /// Rate limited, for the same address and for changing ones.
    private mutating func found(_ number: UInt64, at source: LanPlace, port: UInt16, now: Int64) -> [Action] {
        if let last = pairs[number]?.found {
            let isSame =
                last.source.address == source.address && last.source.interface == source.interface && last.port == port
            guard now - last.at >= (isSame ? LanLimits.foundInterval : LanLimits.foundPause) else { return [] }
        }
        pairs[number]?.found = (source, port, now)
        return [.found(number, source, port: port)]
    }
}
