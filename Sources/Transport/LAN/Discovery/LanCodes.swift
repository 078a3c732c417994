import Cryptography

/// A multicast question for an open code, or its answer (Join.md, "Code on one network"). Both have the same length,
/// so that the answer amplifies nothing.
/// Version and first byte are those of ``LanDatagram``, which has no such kinds and lengths.
package struct LanCodeDatagram: Hashable, Sendable {
    package enum Kind: UInt8, Hashable, Sendable {
        case question = 3
        case answer = 4
    }

    package static let byteCount = 12

    package var kind: Kind
    /// The number of a code, or a port.
    package var number: UInt16
    package var id: UInt64

    package init(_ kind: Kind, number: UInt16, id: UInt64) {
        self.kind = kind
        self.number = number
        self.id = id
    }

    package init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.byteCount, bytes[0] == LanDatagram.version, let kind = Kind(rawValue: bytes[1]) else {
            return nil
        }
        let number = UInt16(bytes[2]) << 8 | UInt16(bytes[3])
        guard number != 0 else { return nil }
        self.init(kind, number: number, id: bytes[4...].reduce(0) { $0 << 8 | UInt64($1) })
    }

    package var bytes: [UInt8] { [LanDatagram.version, kind.rawValue] + bigEndian(number) + bigEndian(id) }
}

/// Answers questions for open codes from machines on our own networks, each question once and rate limited. Without I/O
/// and without a clock; times are in milliseconds.
package struct LanCodeResponder: Sendable {
    package struct Answer: Hashable, Sendable {
        package let bytes: [UInt8]
        package let place: LanPlace
        package let source: LanPlace
    }

    private var interfaces: [LanInterface] = []
    /// Answered questions, the newest last: each arrives once per address of ours.
    private var answered: [UInt64] = []
    private var allowances = Allowances<IPAddress>(
        burst: LanLimits.answerBurst, interval: LanLimits.answerInterval, totalBurst: LanLimits.answerTotalBurst,
        totalInterval: LanLimits.answerTotalInterval)

    package init() {}

    package mutating func setInterfaces(_ interfaces: [LanInterface]) { self.interfaces = interfaces }

    /// Addresses that can send answers, in a fixed order.
    package var places: [LanPlace] { interfaces.places }

    /// - Parameter isOpen: whether a code with this number is open.
    package mutating func receive(_ bytes: [UInt8], from source: LanPlace, now: Int64, isOpen: (UInt16) -> Bool)
        -> Answer?
    {
        guard let question = LanCodeDatagram(bytes), question.kind == .question, isOpen(question.number),
            !answered.contains(question.id), let interface = interfaces.first(where: { $0.index == source.interface }),
            interface.isNear(source.address),
            let place = [interface].places.first(where: { place in place.address.isIPv4 == source.address.isIPv4 }),
            allowances.take(source.address, now: now)
        else { return nil }
        answered.append(question.id)
        if answered.count > LanLimits.questionCount { answered.removeFirst() }
        let answer = LanCodeDatagram(.answer, number: place.port, id: question.id)
        return Answer(bytes: answer.bytes, place: place, source: source)
    }
}

/// Looks for the node with an open code on all networks of this machine. It sends several questions, each with an id of
/// its own, and waits for a second answer. Without I/O and without a clock; times are in milliseconds.
package struct LanCodeSeeker: Sendable {
    package enum Action: Hashable, Sendable {
        case ask([UInt8], from: LanPlace)
        /// The node's address, with its listener's port.
        case found(LanPlace)
        /// Several nodes answered one question. Choosing a wrong one would use up that node's code.
        case ambiguous
        case nobody
    }

    private enum State: Sendable {
        case asking
        case gathering(LanPlace, id: UInt64, until: Int64)
        case ended
    }

    /// When the questions leave, and when the search ends, after its start.
    package static let questions: [Int64] = [50, 500, 1_200, 2_200, 3_400]
    package static let patience: Int64 = 4_500
    /// Wait for answers of other nodes.
    package static let gathering: Int64 = 300

    private let slot: UInt16
    private let start: Int64
    private let interfaces: [LanInterface]
    private var asked = 0
    private var ids: [UInt64] = []
    private var state = State.asking

    /// - Parameter interfaces: asks from each address.
    package init(slot: UInt16, interfaces: [LanInterface], now: Int64) {
        self.slot = slot
        self.interfaces = interfaces
        start = now
    }

    /// Source addresses: all IPv4 ones and the link-local ones of IPv6.
    package var places: [LanPlace] {
        interfaces.prefix(LanLimits.interfaceCount).flatMap { interface in
            interface.addresses.filter { $0.address.isIPv4 || $0.address.isLinkLocal }.prefix(LanLimits.addressCount)
                .map { LanPlace(interface: interface.index, address: $0.address, port: 0) }
        }
    }

    package var nextDeadline: Int64? {
        let next = start + (asked < Self.questions.count ? Self.questions[asked] : Self.patience)
        switch state {
        case .asking: return next
        case .gathering(_, _, let until): return until
        case .ended: return nil
        }
    }

    package mutating func advance(now: Int64, using random: inout some RandomNumberGenerator) -> [Action] {
        switch state {
        case .ended: return []
        case .gathering(let place, _, let until):
            guard now >= until else { return [] }
            state = .ended
            return [.found(place)]
        case .asking: break
        }
        guard now < start + Self.patience, !places.isEmpty else {
            state = .ended
            return [.nobody]
        }
        guard asked < Self.questions.count, now >= start + Self.questions[asked] else { return [] }
        asked += 1
        let id = random.next()
        ids.append(id)
        let question = LanCodeDatagram(.question, number: slot, id: id)
        return places.map { .ask(question.bytes, from: $0) }
    }

    package mutating func receive(_ bytes: [UInt8], from source: LanPlace, now: Int64) -> [Action] {
        guard let answer = LanCodeDatagram(bytes), answer.kind == .answer, ids.contains(answer.id),
            let interface = interfaces.first(where: { $0.index == source.interface }), interface.isNear(source.address)
        else { return [] }
        let place = LanPlace(interface: source.interface, address: source.address, port: answer.number)
        switch state {
        case .asking:
            state = .gathering(place, id: answer.id, until: now + Self.gathering)
            return []
        case .gathering(let first, let id, _):
            // A node answers each question once, so two answers to one question are of two nodes. An answer to another
            // question may come from another address of the same node.
            guard first != place, answer.id == id else { return [] }
            state = .ended
            return [.ambiguous]
        case .ended: return []
        }
    }
}
