#if DEBUG || FUZZING
    import Messaging
    @testable import NodeRuntime
    import Cryptography
    import TestSupport
    import Transport

    /// Files of the home that users edit, and the notes of sleeping inboxes.
    let homeTargets: [FuzzTarget] = [
        FuzzTarget("peers-file", byteCountLimit: 8_192) {
            let card = ContactCard(
                key: FuzzKeys.ann.publicKey, routingSecret: [UInt8](repeating: 3, count: 32),
                endpoints: [Endpoint(host: "192.0.2.1", port: 7440)])
            return [
                #"{"peers":[{"name":"ann","contact":"\#(card)","invitations":"accept","blocked":false}]}"#,
                "{\n \"peers\" : [\n {\"name\":\"bob\",\"endpoints\":[\"tcp://h:1\"]},\n {\"name\":7}\n]}",
                #"{"peers":[]}"#,
            ].map { Array($0.utf8) }
        } run: { bytes in
            do throws(HomeFileError) { _ = try PeersFile.parse(bytes, path: "peers.json") } catch {
                try checkLine(of: error, in: bytes)
            }
        },
        FuzzTarget("configuration", byteCountLimit: 8_192) {
            [
                """
                {"name":"n","listen":["tcp://127.0.0.1:7440"],"advertise":[],"policy":"accept-up-to:1d","capacity":20,
                "cap":"7d","attachmentByteCount":1000,"readReceipts":true,
                "storage":{"bytesPerInbox":1,"bytesFree":2},"hooks":[{"events":["message"],"command":["/bin/true"]}]}
                """, "{\"listen\":[],\n\"advertise\":[\"tcp://[::1]:1\"],\n\"policy\":\"ask\",\"capacity\":-1}",
            ].map { Array($0.utf8) }
        } run: { bytes in
            do throws(HomeFileError) {
                let configuration = try HomeFile.decode(NodeConfiguration.self, bytes, path: "config.json")
                _ = LifetimePolicy(configuration.policy)
                for index in 0..<3 { _ = try? JSONIndex(bytes).line(of: ["hooks", FilePathKey(intValue: index)]) }
            } catch { try checkLine(of: error, in: bytes) }
        },
        FuzzTarget("inbox-entry", byteCountLimit: 8_192) {
            var samples = Samples()
            let summary = InboxSummary(
                client: ClientID.generate(&samples.random), createdAt: samples.now, own: samples.ann.publicKey,
                conversation: samples.conversation(), creator: samples.ann.publicKey, name: "room",
                members: [InboxSummary.Peer(key: samples.bob.publicKey, profile: "bob")], lifetime: .oneDay,
                isLocked: true, isRemoved: false, outboxCount: 0, endpointMark: 77,
                relaySeeds: [.random(&samples.random), .random(&samples.random)], lastActivity: samples.now,
                deadline: nil)
            let route = InboxTableEntry.Route(
                remote: samples.bob.publicKey, secret: samples.random.bytes(32),
                counters: ListenerCounters(
                    window: TokenWindow(shown: 7, completed: 5), next: TokenGeneration(day: 20_000, counter: 2),
                    days: [ListenerCounters.Day(day: 20_000, window: TokenWindow(shown: 2, completed: 2))]))
            let id = samples.invite("what fell over", .oneDay, end: samples.now + .day).id
            let notes = inboxNotes(id)
            return [
                InboxTableEntry(summary: summary, routes: [route, route], invites: [id], notes: notes).encoded,
                InboxTableEntry(summary: summary, routes: [], invites: [], notes: InboxNotes()).encoded,
            ]
        } run: { bytes in
            try comesBack(InboxTableEntry(bytes)) { InboxTableEntry($0.encoded) }
        },
        FuzzTarget("inbox-snapshot", byteCountLimit: 16_384, cost: 10) {
            var samples = Samples()
            return try samples.inboxRoles().map { role in
                let record = InboxRecord(client: ClientID.generate(&samples.random), createdAt: samples.now, role: role)
                let counters = InboxSnapshot.Counters(
                    remote: samples.bob.publicKey,
                    dial: DialCounters(series: DialCounters.Series(answered: 3, shown: 4)),
                    accept: ListenerCounters(window: TokenWindow(shown: 2, completed: 1)))
                return InboxSnapshot(
                    record: record, counters: [counters], lastActivity: samples.now, outboxCount: 2, outboxPlace: 77,
                    notes: inboxNotes(samples.invite("what fell over", .oneDay, end: samples.now + .day).id)
                ).encoded
            }
        } run: { bytes in
            guard let snapshot = try? StoredCodec.decode(InboxSnapshot.self, bytes) else { return }
            let again = InboxSnapshot.replaceCounters(of: snapshot.encoded, by: []).flatMap {
                try? StoredCodec.decode(InboxSnapshot.self, $0)
            }
            let isSame = again?.record == snapshot.record && again?.notes == snapshot.notes
            try expect(isSame && again?.counters?.isEmpty == true, "a snapshot does not come back")
            try wakeUp(snapshot.record)
        },
        FuzzTarget("fan-out", byteCountLimit: 4_096) {
            let target = FanOut.Target(
                remote: FuzzKeys.bob.publicKey, endpoints: [Endpoint(host: "h", port: 1)],
                knock: Hex.encode([UInt8](repeating: 1, count: 32)))
            var samples = Samples()
            let fanOut = FanOut(conversation: samples.conversation(), until: samples.now, targets: [target])
            return [StoredCodec.encode(record: fanOut)]
        } run: { bytes in
            guard let fanOut = try? StoredCodec.decode(FanOut.self, bytes) else { return }
            for target in fanOut.targets { _ = Hex.decode(target.knock).flatMap { KnockSecret(bytes: $0) } }
        },
    ]

    /// The line that an error names must exist.
    private func checkLine(of error: HomeFileError, in bytes: [UInt8]) throws {
        guard let line = error.line else { return }
        let count = 1 + bytes.count { $0 == 0x0a }
        try expect((1...count).contains(line), "line \(line) of \(count)")
    }

    private func inboxNotes(_ invite: InviteID) -> InboxNotes {
        let (ann, bob) = (FuzzKeys.ann.publicKey, FuzzKeys.bob.publicKey)
        return InboxNotes(
            alias: "night shift", takesName: false, sentInvites: [InboxNotes.SentInvite(invite: invite, peer: bob)],
            guests: [InboxNotes.Guest(member: bob, peer: ann)])
    }

    /// The core must accept every decodable record.
    private func wakeUp(_ record: InboxRecord) throws {
        let now = Timestamp(milliseconds: 1_795_247_146_133)
        var turn = Turn(now: now, random: .seeded(1))
        let node = NodeStateMachine()
        node.load(record, key: FuzzKeys.ann, &turn)
        node.advance(&turn)
        try comesBack(node.record(record.client)) {
            try StoredCodec.decode(InboxRecord.self, StoredCodec.encode(record: $0))
        }
    }
#else
    /// Needs internal declarations.
    let homeTargets: [FuzzTarget] = []
#endif
