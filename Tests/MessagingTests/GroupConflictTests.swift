import Cryptography
import Messaging
import TestSupport
import Testing

/// Conflicts: two states of one version by the creator, or two descriptions of one version by a member, by intent or
/// from a restored home. All members end with the same one, and are told.
@Suite struct GroupConflicts {
    /// Two states of one version, each told to another member while the members have no link.
    private func split(_ all: inout World, _ change: (inout GroupState, _ second: Bool) -> Void) throws -> [GroupState]
    {
        let known = try #require(all.machine(0)?.record.group)
        return [false, true].map { second in
            var state = known
            state.version += 1
            change(&state, second)
            return state.signed(by: all.keys[0], &all.random)
        }
    }

    private func tell(_ state: GroupState, _ node: Int, _ all: inout World) {
        all.inject(.group(GroupUpdate(state: state, members: [], departures: [])), from: 0, to: node)
    }

    private func conflicts(_ node: Int, _ all: World) -> Int {
        all.events[node].count { if case .groupConflict = $0 { true } else { false } }
    }

    @Test(arguments: [true, false]) func `members given two states of one version all take the same, and are told once`(
        isLocked: Bool
    ) throws {
        var all = try World.joined(3)
        all.run()
        let states = try split(&all) { state, second in
            if isLocked { state.isLocked = second } else { state.name = second ? "one" : "other" }
        }
        // The two members hear different states, and learn of the other state only from each other.
        all.isolate(1, from: [2])
        for (state, node) in zip(states, [1, 2]) { tell(state, node, &all) }
        #expect(all.machine(1)?.record.group == states[0] && all.machine(2)?.record.group == states[1])
        #expect(all.machine(1)?.groupDigest != all.machine(2)?.groupDigest, "the digest covers what was signed")
        all.isolate(0)
        all.cut = [[0, 1], [0, 2]]
        all.run(for: 10 * .second)
        #expect(all.isOnline(1, 2))
        let winner = states.min { $0.digest.lexicographicallyPrecedes($1.digest) }
        #expect(all.machine(1)?.record.group == winner && all.machine(2)?.record.group == winner)
        #expect(conflicts(1, all) + conflicts(2, all) >= 1)
        // The restored creator takes it over, too.
        all.heal(for: .minute)
        for node in 0..<3 {
            #expect(all.machine(node)?.record.group == winner && conflicts(node, all) <= 1, "\(node)")
            #expect(all.machine(node)?.groupDigest == all.machine(0)?.groupDigest)
        }
    }

    @Test func `a member given two member lists of one version takes the same in either order`() throws {
        for isReversed in [false, true] {
            var all = try World.joined(4)
            all.run()
            all.agree(on: .oneDay)
            let keys = all.keys.map(\.publicKey)
            // Two states of one version, each without another member.
            let states = try split(&all) { state, second in
                state.membership += 1
                state.members = [keys[0], keys[1], second ? keys[2] : keys[3]]
            }
            let winner = try #require(states.min { $0.digest.lexicographicallyPrecedes($1.digest) })
            for state in isReversed ? states.reversed() : states { tell(state, 1, &all) }
            #expect(all.machine(1)?.record.group == winner)
            let others = all.machine(1)?.currentMembers.map(\.key).sorted()
            #expect(others == winner.members.filter { $0 != keys[1] }.sorted())
            let agreement = all.machine(1)?.agreement
            #expect(agreement?.covers(winner.members) ?? true)
            #expect(conflicts(1, all) == 1)
        }
    }

    @Test func `a member given two descriptions of one version shows the same in either order`() throws {
        var shown: [[String]] = []
        for isReversed in [false, true] {
            var all = try World.joined(3)
            all.run()
            let version = UInt64(all.now.milliseconds) + 1
            let places = [Endpoint(host: "n2", port: 1)]
            let two = ["one", "other"].map {
                Member(profile: $0, endpoints: places, version: version, key: all.keys[2], &all.random)
            }
            for member in isReversed ? two.reversed() : two {
                all.inject(.group(GroupUpdate(state: nil, members: [member], departures: [])), from: 0, to: 1)
            }
            #expect(all.names(1).contains("one") != all.names(1).contains("other"))
            shown.append(all.names(1))
        }
        #expect(shown[0] == shown[1])
    }
}
