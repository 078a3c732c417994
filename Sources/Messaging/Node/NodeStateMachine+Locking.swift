import Primitives

/// The lock of the storage, with which the keys of all inboxes go.
extension NodeStateMachine {
    /// Before the storage is locked and the keys of all inboxes are wiped.
    package mutating func prepareForLock(_ turn: inout Turn) {
        for client in awakeClients {
            guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else {
                continue
            }
            machine.prepareForLock(&turn)
            inboxes[client] = .conversation(machine)
        }
    }

    /// After the keys are there again: what had to be signed is, and whoever has no link is dialled.
    package mutating func unlocked(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for client in awakeClients {
            guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else {
                continue
            }
            let actions = machine.unlocked(&turn)
            inboxes[client] = .conversation(machine)
            result += settle(actions, &turn)
        }
        return result + addressesChanged(&turn)
    }
}
