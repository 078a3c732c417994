import Crypto
import Messaging

extension FuzzSession {
    mutating func command(_ input: inout FuzzInput) {
        let node = input.index(below: all.nodes.count)
        let client = all.clients[node]
        let known = all.archive[node].keys.sorted()
        let id =
            known.isEmpty
            ? MessageID(unchecked: [UInt8](repeating: 0, count: 16)) : known[input.index(below: known.count)]
        let other = all.keys[input.index(below: all.keys.count)].publicKey
        switch input.index(below: Self.commandCount) {
        case 0:
            let text = input.text()
            all.command(node) { (machine, turn) throws(CommandError) in _ = try machine.send(text, &turn) }
        case 1:
            let lifetimes = Lifetime.allCases
            let terms = LifetimeTerms(lifetimes[input.index(below: lifetimes.count)])
            all.command(node) { (machine, turn) throws(CommandError) in try machine.propose(terms, &turn) }
        case 2: all.command(node) { (machine, turn) throws(CommandError) in try machine.accept(&turn) }
        case 3: all.command(node) { (machine, turn) throws(CommandError) in try machine.reject(&turn) }
        case 4: all.command(node) { (machine, turn) throws(CommandError) in try machine.withdraw(&turn) }
        case 5:
            let policies: [LifetimePolicy?] = [nil, .ask, .refuse, .acceptUpTo(.oneDay)]
            let policy = policies[input.index(below: 4)]
            all.command(node) { machine, turn in machine.setPolicy(policy, &turn) }
        case 6:
            let caps: [LifetimeCap?] = [nil, LifetimeCap.none, .atMost(.oneHour), .atMost(.ephemeral)]
            let cap = caps[input.index(below: 4)]
            all.command(node) { machine, turn in machine.setCap(cap, &turn) }
        case 7: all.command(node) { (machine, turn) throws(CommandError) in _ = try machine.reply("ja", to: id, &turn) }
        case 8:
            let isRemoved = input.byte() & 1 == 0
            all.command(node) { (machine, turn) throws(CommandError) in
                _ = try machine.react("👍", to: id, isRemoved: isRemoved, &turn)
            }
        case 9: sendFile(node, &input)
        case 10:
            let time = input.byte() & 1 == 0 ? nil : Timestamp(milliseconds: input.signed())
            let isTraceless = input.byte() & 1 == 0
            all.command(node) { (machine, turn) throws(CommandError) in
                try machine.explode(at: time, isTraceless: isTraceless, &turn)
            }
        case 11:
            let name = input.text()
            all.command(node) { (machine, turn) throws(CommandError) in try machine.rename(name, &turn) }
        case 12:
            let isLocked = input.byte() & 1 == 0
            all.command(node) { (machine, turn) throws(CommandError) in try machine.setLocked(isLocked, &turn) }
        case 13: all.command(node) { (machine, turn) throws(CommandError) in try machine.remove(other, &turn) }
        case 14:
            let profile = input.text()
            all.command(node) { (machine, turn) throws(CommandError) in try machine.setProfile(profile, &turn) }
        case 15: all.command(node) { machine, turn in machine.leave(&turn) }
        case 16:
            let isOn: Bool? = [nil, true, false][input.index(below: 3)]
            all.command(node) { machine, turn in machine.setReadReceipts(isOn, &turn) }
        case 17: all.command(node) { machine, turn in machine.markRead(known.map { ($0, other) }, &turn) }
        case 18: all.command(node) { (machine, turn) throws(CommandError) in try machine.cancel(id, &turn) }
        case 19: all.command(node) { machine, turn in machine.close(&turn) }
        case 20: all.command(node) { machine, turn in machine.retry(&turn) }
        case 21: all.step(node) { core, turn in _ = try? core.sleep(client, &turn) }
        case 22: all.wake(node, client, .userInteraction)
        case 23: all.wake(node, client, .pushNotification)
        case 24: all.command(node) { machine, _ in machine.releaseMemory() }
        case 25:
            all.command(node) { (machine, turn) throws(CommandError) in
                _ = try machine.invite(lifetime: .hour, singleUse: false, &turn)
            }
        case 26: all.command(node) { (machine, turn) throws(CommandError) in try machine.revokeAll(&turn) }
        default:
            var isCancelled = false
            all.step(node) { core, turn in
                _ = turn.apart { isCancelled = core.cancelJoin(client, &$0) }
                if !isCancelled { core.retryJoin(client, &turn) }
            }
            if isCancelled { all.gone.insert(node) }
        }
    }

    private mutating func sendFile(_ node: Int, _ input: inout FuzzInput) {
        let byteCount = Int64(input.short()) << 4
        all.command(node) { (machine, turn) throws(CommandError) in
            let prepared = try machine.prepareAttachment(byteCount: byteCount, &turn)
            let attachment = Attachment(
                name: "f", mediaType: "text/plain", byteCount: byteCount, hash: [UInt8](repeating: 0, count: 32),
                text: "")
            _ = try machine.send(attachment, prepared, &turn)
        }
    }
}
