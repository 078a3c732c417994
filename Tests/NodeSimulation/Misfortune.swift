import Glibc
import Messaging
import SimulatedDisk
import Simulation

extension NodeSimulation {
    func misfortune() {
        guard !isCalm else { return }
        befall()
        time.plan(inMilliseconds: 200 + roll(8_000)) { [unowned self] in misfortune() }
    }

    private func befall() {
        guard let machine = pick(machines) else { return }
        switch roll(100) {
        case ..<12:
            count("connections lost")
            network.pick()?.lose()
        case ..<17:
            count("connections half open")
            network.pick()?.vanish()
        case ..<20: datagrams.rebind()
        case ..<32: part()
        case ..<40:
            count("noise on the wire")
            network.spoilsPerThousand = one(of: [0, 2, 20, 200])
            datagrams.lossPerCent = one(of: [0, 1, 10, 30])
            network.refusesPerCent = one(of: [0, 50, 100])
        case ..<50: for _ in 0..<1 + roll(4) { network.intrude() }
        case ..<62: if machine.isUp { crash(machine, isPowerCut: true) }
        case ..<66: if machine.isUp { crash(machine, isPowerCut: false) }
        case ..<70: if machine.isUp { stop(machine) }
        case ..<74:
            count("power cuts in the middle of a change")
            machine.disk.changesUntilPowerCut = 1 + Int(roll(30))
        case ..<82: failDisk(machine)
        case ..<86:
            count("slow disks")
            machine.slowness = one(of: [5, 50, 500, 3_000])
        default: stepClock(machine)
        }
    }

    private func part() {
        guard let one = pick(machines)?.index, let other = pick(machines)?.index, one != other else { return }
        let isOneWay = chance(30)
        count(isOneWay ? "one-way partitions" : "partitions")
        network.block(one, other, isOneWay: isOneWay)
        let length = roll(chance(70) ? 5_000 : 80_000)
        time.plan(inMilliseconds: length) { [unowned self] in network.unblock(one, other, isOneWay: isOneWay) }
    }

    private func failDisk(_ machine: Machine) {
        guard machine.isUp else { return }
        machine.diskHasFailed = true
        switch roll(10) {
        case ..<4:
            count("full disks")
            machine.disk.platter.with { $0.isFull = true }
        case ..<8:
            count("failing disks")
            machine.disk.failure = (UInt64(1 + roll(100)), one(of: [EIO, ENOSPC, EDQUOT, EROFS]))
        default:
            count("disks that cannot be read")
            machine.readsHaveFailed = true
            machine.disk.readFailure = UInt64(1 + roll(100))
        }
        let incarnation = machine.incarnation
        time.plan(inMilliseconds: roll(6_000)) { if machine.incarnation == incarnation { machine.disk.mend() } }
    }

    private func stepClock(_ machine: Machine) {
        count("clock steps")
        let size: Milliseconds =
            switch roll(20) {
            case ..<10: roll(20_000)
            case ..<19: roll(2 * .hour)
            default: 10 * 365 * .day
            }
        let step = chance(50) ? size : -size
        note("machine \(machine.index): clock \(step)")
        machine.clockOffset += step
        // A clock ten years ahead would never find its peers again, so the step is temporary.
        if size > .day || chance(20) { time.plan(inMilliseconds: roll(50_000)) { machine.clockOffset -= step } }
        look(at: machine)
    }

    func crash(_ machine: Machine, isPowerCut: Bool) {
        count(isPowerCut ? "power cuts" : "killed processes")
        note("machine \(machine.index): \(isPowerCut ? "power cut" : "killed")")
        machine.silence()
        network.mute.remove(machine.index)
        network.stop(machine.index, isPowerCut: isPowerCut)
        datagrams.stop(machine.index)
        machine.crash(isPowerCut: isPowerCut)
        oracle.backUp(machine, self)
        guard !isCalm else { return }
        // A rendezvous node or mailbox keeps its address.
        if chance(5), roads.isEmpty || machine.index != Roads.rendezvous, machine.index != mailbox?.index {
            count("moves")
            machine.place += 1
        }
        if chance(20) { machine.clockOffset -= roll(2 * .hour) }
        time.plan(inMilliseconds: roll(chance(50) ? 500 : 40_000)) { [unowned self] in restart(machine) }
    }

    /// A user stops and restarts the node; faults go on meanwhile.
    func stop(_ machine: Machine) {
        count("stopped processes")
        note("machine \(machine.index): stop")
        let incarnation = machine.incarnation
        machine.stop { [unowned self] in
            time.plan(inMilliseconds: 0) { [unowned self] in
                guard machine.isUp, machine.incarnation == incarnation else { return }
                crash(machine, isPowerCut: false)
            }
        }
    }

    private func restart(_ machine: Machine) { if !machine.isUp, !isCalm { start(machine) } }

    func start(_ machine: Machine) {
        note("machine \(machine.index): start")
        if let error = machine.start() {
            guard machine.isKeptFromStarting, !isCalm else {
                return violation("machine \(machine.index) does not start: \(error)")
            }
            note("machine \(machine.index): not started: \(error)")
            time.plan(inMilliseconds: 1_000) { [unowned self] in restart(machine) }
            return
        }
        check(machine)
        look(at: machine)
    }

    func look(at machine: Machine) { for conversation in list(machine) { read(machine, conversation) } }
}
