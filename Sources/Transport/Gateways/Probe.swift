extension GatewayNetwork {
    /// Tries the methods one after the other for a mapping and removes it again. Blocks: do not call on an event loop.
    /// - Returns: the mapping's status or the failure.
    package func probe(_ place: MappingPlace, key: [UInt8], isGivenUp: @escaping @Sendable () -> Bool)
        -> PortMappingStateMachine.Standing
    {
        var machine = PortMappingStateMachine()
        var waiting = machine.set(place)
        while !waiting.isEmpty, !isGivenUp() {
            switch waiting.removeFirst() {
            case .ask(let number, let question):
                let outcome = ask(question, key: key, isGivenUp: isGivenUp)
                if isGivenUp() {
                    // Remove also the mapping that the gateway may have made for the abandoned question.
                    let standing = machine.standing
                    let now = monotonicMilliseconds()
                    let last = waiting + machine.stop() + machine.answered(number, outcome, now: now)
                    for case .remove(let mapping) in last { remove(mapping, key: key) }
                    return standing
                }
                waiting += machine.answered(number, outcome, now: monotonicMilliseconds())
            case .remove(let mapping): remove(mapping, key: key)
            case .changed: break
            }
        }
        let standing = machine.standing
        for case .remove(let mapping) in waiting + machine.stop() { remove(mapping, key: key) }
        return standing
    }
}
