import Testing

import struct Messaging.Timestamp

@testable import Control
@testable import Program

@Suite struct MethodTests {
    private func fields(_ method: String, _ part: String) -> [String] {
        let methods = Methods.description["methods"]?.arrayValue ?? []
        let description = methods.first { $0["name"]?.stringValue == method }
        return (description?[part]?.arrayValue ?? []).compactMap { $0["name"]?.stringValue }
    }

    @Test func `every method has its own name`() {
        let names = Methods.all.map { $0.name }
        #expect(Set(names).count == names.count)
    }

    @Test func `a call waits if it blocks or occupies its connection, and no other does`() {
        func waits<Method: ControlMethod>(_ method: Method, _ change: (inout Method.Params) -> Void = { _ in }) -> Bool
        {
            var params = Method.Params()
            change(&params)
            return method.waits(params)
        }
        #expect(waits(NodeMethods.unlock) && waits(NodeMethods.netcheck) && waits(PeerMethods.ping))
        #expect(waits(ProtectionMethods.change) && waits(ProtectionMethods.set) && waits(ProtectionMethods.drop))
        #expect(waits(InviteMethods.outcome) && waits(EventMethods.subscribe) && waits(AttachmentMethods.begin))
        #expect(waits(JoinMethods.join) && !waits(JoinMethods.join) { $0.wait = false })
        #expect(waits(InviteMethods.code) { $0.wait = true } && !waits(InviteMethods.code))
        #expect(waits(MessageMethods.send) { $0.wait = .sent } && !waits(MessageMethods.send))
        #expect(waits(MessageMethods.react) { $0.wait = .sent } && !waits(MessageMethods.react))
        #expect(waits(AttachmentMethods.commit) { $0.wait = .sent } && !waits(AttachmentMethods.commit))
        // The only call of `doctor` is `status`.
        #expect(
            !waits(NodeMethods.status) && !waits(NodeMethods.version) && !waits(NodeMethods.stop)
                && !waits(NodeMethods.lock))
        #expect(!waits(ConversationMethods.list) && !waits(OutboxMethods.list) && !waits(ExplodeMethods.explode))
    }

    @Test(arguments: [
        ("status", ["running", "version", "listen", "locked", "erasure", "inboxes", "links", "outbox", "nextExpiry"]),
        ("peer.show", ["name", "endpoints", "contact", "blocked", "invitations", "lastSeen", "path", "rttMs"]),
        ("conversation.create", ["conversation", "inbox", "name", "inviteTag"]),
        ("conversation.show", ["conversation", "name", "role", "members", "lifetime", "expiresAt", "locked", "state"]),
        ("invite.create", ["slug", "tag", "expiresAt", "singleUse", "creator", "lifetime", "signature"]),
        ("join", ["conversation", "state", "errorType", "message"]),
        ("send", ["message", "state", "stored", "expiresAt"]),
        ("lifetime.show", ["lifetime", "state", "proposal", "agreement"]),
        ("explode", ["conversation", "expiresAt", "state", "confirmed", "waiting"]),
        ("outbox.retry", ["message", "conversation", "to", "attempts", "nextAttempt", "expiresAt", "state"]),
        ("lifetime.propose", ["lifetime", "state", "proposal", "agreement"]), ("mailbox.status", ["own", "service"]),
        ("inbox.wake", ["inbox", "state", "wakeReason", "lastActivity", "protected"]),
    ]) func `a result has the fields of the contract`(method: String, contract: [String]) {
        #expect(Set(contract).isSubset(of: fields(method, "result")), "\(fields(method, "result"))")
    }

    @Test func `the schema lists the fields of the types`() throws {
        let send = FieldSchema.fields(of: SendParams.self)
        // Files are sent with `attachment.begin`, since a line cannot hold them.
        #expect(
            send.map(\.name) == [
                "conversation", "text", "texts", "wait", "timeout", "replyTo", "type", "payload", "fallback",
            ])
        #expect(
            send.map(\.type) == ["string", "string", "[string]", "string", "interval"]
                + Array(repeating: "string", count: 4))
        #expect(send.map(\.isOptional) == [false] + Array(repeating: true, count: 8))
        #expect(send[3].values == ["queued", "sent", "mailed", "delivered"])
        let read = FieldSchema.fields(of: ReadResult.self)
        let file = read[0].fields.first { $0.name == "file" }
        #expect(file?.fields.map(\.name) == ["name", "mediaType", "byteCount", "state", "percent"])
        #expect(read[0].type == "[object]")
        #expect(read[0].fields.map(\.name).contains("expiresAt"))
        #expect(fields("conversation.create", "params") == ["name", "as", "with", "alias"])
        #expect(fields("conversation.alias", "params") == ["conversation", "alias"])
        for method in ["conversation.show", "conversation.create", "join"] {
            #expect(fields(method, "result").contains("alias"), "\(method)")
        }
        let listed = FieldSchema.fields(of: ConversationListResult.self)[0].fields
        #expect(listed.map(\.name).contains("alias"))
        #expect(fields("explode", "params") == ["conversation", "at", "in", "noTrace"])
        #expect(fields("explode.list", "params") == ["from"])
        let explosions = FieldSchema.fields(of: ExplodeListResult.self)[0].fields.map(\.name)
        #expect(explosions == FieldSchema.fields(of: ExplosionStatus.self).map(\.name))
    }

    @Test func `a list comes in pages, each after the last one before it`() throws {
        let all = (0..<20_000).map { number in
            (number, ListPlace(at: Timestamp(milliseconds: Int64(number / 3)), id: "\(100_000 + number)-x"))
        }
        func page(_ from: String?) throws -> (shown: [Int], next: String?) {
            try AnswerPage.list(all, from: from, byteCount: { _ in 4_000 }, show: { $0 })
        }
        var (numbers, from): ([Int], String?) = ([], nil)
        repeat {
            let (shown, next) = try page(from)
            #expect((1...262).contains(shown.count))
            (numbers, from) = (numbers + shown, next)
        } while from != nil
        #expect(numbers == Array(0..<20_000))
        #expect(throws: ControlError.self) { try page("x") }
        let link = Link(transport: "tcp", family: "ipv6", address: String(repeating: "f", count: 45))
        let name = String(repeating: "\"", count: 128)
        let member = Member(
            member: "0123456789ab", profile: name, peer: name, online: true, path: "relayed", link: link,
            mailbox: .named, copied: true, reportsCopies: true)
        let room = Conversation(
            conversation: String(repeating: "a", count: 64), alias: name, name: name, role: "creator",
            members: Array(repeating: member, count: 31), state: "scheduled", profile: name, inbox: name)
        #expect(JSONValue(of: room).text.utf8.count <= AnswerPage.largestByteCount(of: room))
    }

    @Test func `an empty field of the contract is null, and other empty ones are omitted`() throws {
        let conversation = Conversation(
            conversation: "c1", name: nil, role: "creator", members: [], lifetime: .ephemeral, expiresAt: nil,
            locked: false, state: "ready")
        let value = JSONValue(of: conversation)
        #expect(value["expiresAt"] == .null)
        #expect(value["name"] == .null)
        #expect(value["inbox"] == nil)
        #expect(try value.decoded(as: Conversation.self) == conversation)
        guard case .object(var members) = value else { return }
        members["expiresAt"] = nil
        #expect(try JSONValue.object(members).decoded(as: Conversation.self) == conversation)
    }

    @Test func `terms have a mailbox field only with a mailbox`() throws {
        #expect(fields("lifetime.propose", "params").contains("mailbox"))
        #expect(EventKind.lifetimeProposed.fields.contains("mailbox"))
        #expect(EventKind.lifetimeAgreed.fields.contains("mailbox"))
        #expect(EventKind.values(of: "mailbox") == ["ram", "disk"])
        var proposal = LifetimeProposal(
            terms: .init(lifetime: .oneDay), from: "bob", proposedAt: Timestamp(milliseconds: 0))
        #expect(JSONValue(of: proposal)["mailbox"] == nil && proposal.terms.mailboxWords == nil)
        proposal.terms.mailbox = .ram
        #expect(JSONValue(of: proposal)["mailbox"] == "ram" && proposal.terms.mailboxWords == "mailbox in memory")
        #expect(try JSONValue(of: proposal).decoded(as: LifetimeProposal.self) == proposal)
    }

    @Test func `an absent side of a mailbox is null, and a status is read back unchanged`() throws {
        let none = JSONValue(of: MailboxStatus(own: nil, service: nil))
        #expect(none["own"] == .null && none["service"] == .null)
        var own = OwnMailboxStatus(peer: "hub", state: .refused, reason: "unknownPeer", message: "does not know us")
        own.boxes = 2
        var service = MailboxServiceStatus()
        service.kept = [KeptBox(peer: "ann", slots: nil, bytes: nil, lastSeen: Timestamp(milliseconds: 7))]
        let status = MailboxStatus(own: own, service: service)
        let value = JSONValue(of: status)
        #expect(value["own"]?["state"] == "refused" && value["own"]?["longest"] == nil)
        #expect(try value.decoded(as: MailboxStatus.self) == status)
    }

    @Test func `a member's id accompanies its name everywhere`() {
        let read = FieldSchema.fields(of: ReadResult.self)[0].fields
        #expect(read.map(\.name).contains("member"))
        #expect(read.first { $0.name == "reactions" }?.fields.map(\.name) == ["from", "member", "reaction"])
        #expect(read.first { $0.name == "deliveries" }?.fields.map(\.name) == ["member", "name", "state", "at"])
        let invite = fields("invite.create", "result")
        #expect(invite.contains("id") && Set(["invite", "url"]).isDisjoint(with: invite))
        let lifetime = FieldSchema.fields(of: LifetimeStatus.self)
        #expect(lifetime.first { $0.name == "proposal" }?.fields.map(\.name).contains("member") == true)
        #expect(EventKind.message.fields.contains("member") && EventKind.inboxAwake.fields == ["wakeReason"])
        let own = Message(
            message: HexID(1, 2), conversation: HexID(3, 4), from: "me", type: "t", sentAt: Timestamp(milliseconds: 0),
            stored: false, state: "sent")
        #expect(JSONValue(of: own)["member"] == .null)
    }

    @Test func `an event is a flat object`() {
        let event = Event(
            cursor: 7, event: .memberJoined, at: Timestamp(milliseconds: 0),
            values: ["hi", OrNull<String>(wrappedValue: nil)])
        #expect(
            JSONValue(of: event).text == #"{"at":"1970-01-01T00:00:00Z","conversation":null,"cursor":7,"#
                + #""event":"memberJoined","member":"hi","profile":null}"#)
    }

    @Test func `the exit codes match the contract`() {
        let codes = Dictionary(uniqueKeysWithValues: FailureKind.allCases.map { ($0.rawValue, $0.exitCode) })
        #expect(
            codes == [
                "failed": 1, "usage": 64, "refused": 2, "expired": 3, "timedOut": 4, "unreachable": 5, "locked": 6,
                "notFound": 7, "noNode": 8,
            ])
    }

    @Test(arguments: [
        ("sned room hi --home H", "no command `sned`", "did you mean `mayfly send`?"),
        ("conversation lst --json", "no command `conversation lst`", "did you mean `mayfly conversation list`?"),
        ("peer frobnicate x", "no command `peer frobnicate`", "see `mayfly help peer`"),
        ("bogus --json", "no command `bogus`", "see `mayfly help`"),
        ("gateway-helpers", "no command `gateway-helpers`", "see `mayfly help`"),
        ("recieve room", "no command `recieve`", "did you mean `mayfly read`?"),
        ("delete room", "no command `delete`", "did you mean `mayfly explode` or `mayfly conversation leave`?"),
        ("ping bob", "no command `ping`", "did you mean `mayfly peer ping`?"),
        ("quit", "no command `quit`", "did you mean `mayfly stop`?"),
        ("msg room hi", "no command `msg`", "did you mean `mayfly send`?"),
        ("contacts", "no command `contacts`", "did you mean `mayfly peer list`?"),
        ("ls", "no command `ls`", "did you mean `mayfly conversation list`?"),
        ("explode room --typo", "unknown option `--typo`", "see `mayfly help explode`"),
        ("send room --tex hello", "unknown option `--tex`", "see `mayfly help send`"),
        ("send room hello --tex", "unknown option `--tex`", "see `mayfly help send`"),
        ("send room --repl-to x y", "unknown option `--repl-to`", "did you mean `--reply-to`?"),
        ("lifetime propose room --unopenned=1h", "unknown option `--unopenned`", "did you mean `--unopened`?"),
        ("peer add x --endpont tcp://192.0.2.1:1", "unknown option `--endpont`", "did you mean `--endpoint`?"),
        ("join --nowait", "unknown option `--nowait`", "did you mean `--no-wait`?"),
        ("send room hi there --wait sent", unquoted, "write: mayfly send room 'hi there' --wait sent"),
        ("send room --wait sent hi there", unquoted, "write: mayfly send room 'hi there' --wait sent"),
        ("send --json --timeout 5 room hi -there", unquoted, "write: mayfly send room 'hi -there' --json --timeout 5"),
        (
            "send room --wait sent -x", "`-x` is not an option of `send`",
            "a text that starts with a dash goes after `--`: mayfly send room --wait sent -- -x"
        ),
    ]) func `a mistyped command line is named, with what was meant or the help of its command`(
        line: String, message: String, hint: String
    ) {
        let words = line.split(separator: " ").map(String.init)
        let mistake = CommandLineMistake.unknown(in: words) ?? CommandLineMistake.mistake(in: words)
        #expect(mistake == ControlError(.usage, message, hint: hint))
    }

    private static let unquoted = "the text has several words and is not quoted"

    @Test func `an error is read back unchanged, and one of unknown kind reads as failed`() {
        let error = ControlError(.locked, "the storage is locked", hint: "mayfly unlock", field: "conversation")
        #expect(ControlError(jsonValue: error.jsonValue) == error)
        #expect(ControlError(jsonValue: ["code": -32099, "message": "x", "data": ["kind": "melted"]]).kind == .failed)
    }
}

@Suite struct Base64Tests {
    @Test(arguments: [
        ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy"),
    ]) func `Base64 reproduces the vectors of RFC 4648`(_ plain: String, _ encoded: String) {
        #expect(Base64.encode(Array(plain.utf8)) == encoded)
        #expect(Base64.decode(encoded) == Array(plain.utf8))
    }

    @Test func `Base64 of any length and byte is decoded unchanged`() {
        for count in 0..<300 {
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7) }
            #expect(Base64.decode(Base64.encode(bytes)) == bytes)
        }
    }

    @Test(arguments: ["Z", "Zg", "Zg=", "Z===", "====", "Zh==", "Zm9=", "Zm 9v", "Zm9v\n", "Zg==Zg==", "Zm-_"])
    func `invalid Base64 is refused`(_ text: String) { #expect(Base64.decode(text) == nil) }
}
