/// One of our addresses and its port mapping (Discovery.md, "The mapping machine").
package struct PortMappingStateMachine {
    package enum Question: Hashable, Sendable {
        case find(MappingMethod, MappingPlace)
        case renew(Mapping)
    }

    package enum Outcome: Hashable, Sendable {
        case granted(MappingGrant)
        case failed(MappingFailure)
    }

    package enum Action: Hashable, Sendable {
        /// ``answered(_:_:now:)`` follows, with this number.
        case ask(UInt64, Question)
        /// No answer follows.
        case remove(Mapping)
        /// ``mapping`` has changed or is gone.
        case changed
    }

    private enum State {
        case idle
        case asking(UInt64, MappingMethod, [MappingFailure])
        case waiting(until: Int64, MappingFailure)
        case mapped(Mapping, renewAt: Int64)
        case renewing(UInt64, Mapping)
        /// Stopped; the question still in progress.
        case over((number: UInt64, method: MappingMethod)?)
    }

    private var state = State.idle
    private var place: MappingPlace?
    private var pause = MappingLimits.pause
    private var number: UInt64 = 0

    package init() {}

    package enum Standing: Hashable, Sendable {
        case none
        case asking
        case failed(MappingFailure)
        case mapped(Mapping)
    }

    package var standing: Standing {
        switch state {
        case .idle, .over: .none
        case .asking: .asking
        case .waiting(_, let failure): .failed(failure)
        case .mapped(let mapping, _), .renewing(_, let mapping): .mapped(mapping)
        }
    }

    package var mapping: Mapping? {
        if case .mapped(let mapping) = standing { return mapping }
        return nil
    }

    package var nextDeadline: Int64? {
        switch state {
        case .idle, .asking, .over: nil
        case .waiting(let until, _): until
        case .mapped(let mapping, let renewAt): min(mapping.expiresAt, renewAt)
        case .renewing(_, let mapping): mapping.expiresAt
        }
    }

    /// - Parameter place: `nil` when there is no gateway, or nothing to map. Mappings at an earlier gateway are left to
    ///   expire: there is no route to it any more.
    package mutating func set(_ place: MappingPlace?) -> [Action] {
        if case .over = state { return [] }
        guard place != self.place else { return [] }
        let hadMapping = mapping != nil
        self.place = place
        pause = MappingLimits.pause
        return (hadMapping ? [.changed] : []) + begin()
    }

    package mutating func advance(now: Int64) -> [Action] {
        switch state {
        case .idle, .asking, .over: return []
        case .waiting(let until, _): return until <= now ? begin() : []
        case .mapped(let mapping, let renewAt):
            if mapping.expiresAt <= now { return [.changed] + begin() }
            guard renewAt <= now else { return [] }
            number += 1
            state = .renewing(number, mapping)
            return [.ask(number, .renew(mapping))]
        case .renewing(_, let mapping): return mapping.expiresAt <= now ? [.changed] + begin() : []
        }
    }

    /// - Parameter number: of the question. An outdated one changes nothing, but its mapping is removed if no other
    ///   question goes to that gateway.
    package mutating func answered(_ number: UInt64, _ outcome: Outcome, now: Int64) -> [Action] {
        switch state {
        case .asking(number, let method, let failures): return found(method, failures, outcome, now: now)
        case .renewing(number, let mapping): return renewed(mapping, outcome, now: now)
        case .over((number, let method)?):
            state = .over(nil)
            guard let place else { return [] }
            if case .granted(let grant) = outcome { return [.remove(Mapping(grant, method, place, now: now))] }
            // The mapping may exist without an answer. UPnP removes by outer port, which may be another machine's.
            guard method != .upnp else { return [] }
            let probable = MappingGrant(
                outer: place.local, tcp: place.port, udp: place.hasDatagrams ? place.port : nil,
                lifetime: MappingLimits.lease)
            return [.remove(Mapping(probable, method, place, now: now))]
        case .idle, .asking, .waiting, .mapped, .renewing, .over: return []
        }
    }

    package mutating func stop() -> [Action] {
        switch state {
        case .over: return []
        case .idle, .waiting: state = .over(nil)
        case .asking(let number, let method, _): state = .over((number, method))
        case .mapped(let mapping, _):
            state = .over(nil)
            return [.remove(mapping), .changed]
        case .renewing(let number, let mapping):
            // The renewal in progress creates the mapping again; its answer removes it.
            state = .over((number, mapping.method))
            return [.remove(mapping), .changed]
        }
        return []
    }

    private mutating func begin() -> [Action] {
        guard let place, let first = place.methods.first else {
            state = .idle
            return []
        }
        return find(first, [], place)
    }

    private mutating func find(_ method: MappingMethod, _ failures: [MappingFailure], _ place: MappingPlace) -> [Action]
    {
        number += 1
        state = .asking(number, method, failures)
        return [.ask(number, .find(method, place))]
    }

    private mutating func found(_ method: MappingMethod, _ failures: [MappingFailure], _ outcome: Outcome, now: Int64)
        -> [Action]
    {
        guard let place else { return [] }
        switch outcome {
        case .granted(let grant):
            let mapping = Mapping(grant, method, place, now: now)
            guard let mistake = mistake(grant, place) else {
                pause = MappingLimits.pause
                keep(mapping)
                return [.changed]
            }
            // Other methods would find the same address.
            if case .notGlobal = mistake { return wait(mistake, now: now) + [.remove(mapping)] }
            return [.remove(mapping)] + next(after: method, failures + [mistake], place, now: now)
        case .failed(let failure): return next(after: method, failures + [failure], place, now: now)
        }
    }

    private mutating func next(
        after method: MappingMethod, _ failures: [MappingFailure], _ place: MappingPlace, now: Int64
    ) -> [Action] {
        let rest = place.methods.drop { $0 != method }.dropFirst()
        guard let next = rest.first else { return wait(MappingFailure.telling(failures), now: now) }
        return find(next, failures, place)
    }

    private mutating func wait(_ failure: MappingFailure, now: Int64) -> [Action] {
        state = .waiting(until: now + pause, failure)
        pause = min(pause * 2, MappingLimits.pauseMost)
        return []
    }

    private mutating func keep(_ mapping: Mapping) {
        let wait = min((mapping.expiresAt - mapping.grantedAt) / 2, MappingLimits.renewInterval)
        state = .mapped(mapping, renewAt: mapping.grantedAt + wait)
    }

    private mutating func renewed(_ mapping: Mapping, _ outcome: Outcome, now: Int64) -> [Action] {
        switch outcome {
        case .granted(let grant):
            let new = Mapping(grant, mapping.method, mapping.place, now: now)
            if let mistake = mistake(grant, mapping.place) {
                return [.remove(new), .changed] + wait(mistake, now: now)
            }
            keep(new)
            let isSame = new.outer == mapping.outer && new.ports == mapping.ports
            return isSame ? [] : [.changed]
        case .failed(.silent), .failed(.unsupported), .failed(.malformed):
            // The gateway may be starting. Until the lease ends, retry after half of the remaining time at most.
            let half = min((mapping.expiresAt - now) / 2, MappingLimits.renewInterval)
            state = .mapped(mapping, renewAt: now + max(MappingLimits.retryLeast, half))
            return mapping.expiresAt <= now ? advance(now: now) : []
        case .failed(.refused), .failed(.permanentOnly), .failed(.notGlobal): return [.changed] + begin()
        }
    }

    /// The defect of a grant; `nil` if it is usable.
    private func mistake(_ grant: MappingGrant, _ place: MappingPlace) -> MappingFailure? {
        guard grant.outer.isIPv4 == place.local.isIPv4, grant.tcp > 0, place.hasDatagrams == (grant.udp != nil),
            grant.udp != 0, grant.lifetime >= MappingLimits.leaseLeast
        else { return .malformed }
        return grant.outer.isGlobal ? nil : .notGlobal(grant.outer)
    }
}
