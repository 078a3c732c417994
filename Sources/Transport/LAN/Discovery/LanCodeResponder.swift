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

extension [LanInterface] {
    /// The addresses at which we listen, with their ports, sorted.
    fileprivate var places: [LanPlace] {
        flatMap { interface in
            interface.addresses.compactMap { own in
                own.port.map { LanPlace(interface: interface.index, address: own.address, port: $0) }
            }
        }.sorted()
    }
}
