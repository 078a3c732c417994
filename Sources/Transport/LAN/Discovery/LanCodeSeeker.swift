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
