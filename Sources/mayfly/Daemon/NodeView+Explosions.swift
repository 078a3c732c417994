import Control
import Messaging
import NodeRuntime

/// Ends of conversations as they are shown.
extension NodeView {
    /// Of a conversation that has exploded.
    static func explosion(_ record: ExplodeStateMachine.Record, _ node: isolated Node) -> ExplosionStatus {
        var status = ExplosionStatus(
            conversation: record.conversation.description,
            expiresAt: timestamp(record.explodedAt),
            state: "exploded",
            confirmed: record.members.filter { record.confirmed[$0] != nil }.map(member),
            waiting: ExplodeStateMachine(record: record).waiting.map(member),
            receipts: record.members.compactMap { key in
                record.confirmed[key].map {
                    ExplosionStatus.Receipt(member: member(key), destroyedAt: timestamp($0))
                }
            },
            trace: !record.isTraceless
        )
        switch node.progress(of: record.conversation) {
        case .exploded: break
        case .exploding: status.state = "exploding"
        case .failed(let failure):
            status.state = "error"
            status.error = "the keys could not be destroyed yet: \(failure)"
        }
        return status
    }

    /// Of a conversation that is still there.
    static func explosion(_ machine: ConversationStateMachine) -> ExplosionStatus {
        guard let schedule = machine.record.schedule else {
            return ExplosionStatus(
                conversation: machine.conversation.description,
                state: "none",
                confirmed: [],
                waiting: []
            )
        }
        let members = machine.currentMembers.map(\.key)
        return ExplosionStatus(
            conversation: machine.conversation.description,
            expiresAt: timestamp(schedule.expiresAt),
            state: "scheduled",
            confirmed: members.filter(schedule.confirmed.contains).map(member),
            waiting: members.filter { !schedule.confirmed.contains($0) }.map(member),
            trace: machine.isCreator ? !schedule.isTraceless : nil
        )
    }
}
