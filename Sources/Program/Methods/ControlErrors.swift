import Control
import Messaging
import NodeRuntime
import Store
import Transport

/// Converts any error of the node to the user's message, hint and kind; the kind determines the exit code.
func controlError(_ error: any Error) -> ControlError { knownError(error) ?? ControlError(.failed, "\(error)") }

/// Converts an error for a client of the node; `nil` for an error of a library, which may name files and addresses.
func knownError(_ error: any Error) -> ControlError? {
    switch error {
    case let error as ControlError: error
    case let error as NodeError: nodeError(error)
    case let error as StoreError: storeError(error)
    case let error as CommandError: commandError(error)
    case let error as HomeFileError: homeFileError(error)
    case let error as ListenFailure: listenFailure(error)
    default: nil
    }
}

private func nodeError(_ error: NodeError) -> ControlError {
    switch error {
    case .command(let error): return commandError(error)
    case .store(let error): return storeError(error)
    case .homeFile(let error):
        return homeFileError(error, "correct the file; the node has not changed it and keeps the previous settings")
    case .invite(let failure): return inviteFailure(failure)
    case .code(let refusal): return codeRefusal(refusal)
    case .locked: return ControlError(.locked, "the node is locked", hint: "unlock it with `mayfly unlock`")
    case .unknownConversation(let text, let meant):
        return notFound(
            "no conversation `\(text)`",
            meant.map { "did you mean `\(quoted($0))`?" } ?? "`mayfly conversation list` shows the conversations")
    case .unknownJoin(let text): return notFound("no join `\(text)`", "`mayfly join list` shows the joins")
    case .unknownInvite(let text): return notFound("no invite `\(text)`", "`mayfly invite list C` shows the invites")
    case .joinEnded(let text):
        return failed(
            "the join `\(text)` has ended", "ask for a new invite; `mayfly join cancel \(text)` forgets this one")
    case .unknownPeer(let text): return notFound("no peer `\(text)`", "`mayfly peer list` shows the peers")
    case .unknownMember(let text):
        return notFound("no member `\(text)`", "`mayfly conversation members C` shows the members")
    case .unknownMessage(let text): return notFound("no message `\(text)`", "it may have expired")
    case .ambiguous(let text, let matches):
        return usage("`\(text)` is ambiguous: \(matches.joined(separator: ", "))", "give more characters of the id")
    case .exploded(let conversation, let name):
        return expired(
            "conversation \(name.map(quoted) ?? String(conversation.description.prefix(12))) has exploded",
            "`mayfly explode status \(conversation.description.prefix(12))` shows who did it and when")
    case .joinFailed(let type): return refused(type.userFacingMessage.lowercasedFirst, "ask for a new invite")
    case .joinCancelled: return failed("the join was cancelled")
    case .invalidPeerName(let name):
        return usage("`\(name)` is not a peer's name", "use 1 to 64 letters, digits, `.`, `_` or `-`")
    case .peerExists(let name):
        return failed(
            "another peer is named `\(name)`", "remove it with `mayfly peer remove \(name)`, or choose another name")
    case .peerWithoutCard(let name):
        return failed(
            "`\(name)` has no contact card", "add it: `mayfly peer remove \(name)`, then `mayfly peer add \(name) CARD`"
        )
    case .ownCard:
        return usage(
            "this is the contact card of this node", "give another node's: `mayfly peer card` on that node prints it")
    case .peerBlocked(let name): return failed("`\(name)` is blocked", "`mayfly peer unblock \(name)` first")
    case .invalidCard(let failure):
        let what =
            switch failure {
            case .notACard: "not a contact card"
            case .truncated: "a contact card that was cut off"
            case .damaged: "a contact card with a changed or missing character"
            case .unknownVersion(let version): "a contact card of version \(version), which this version does not know"
            case .invalidKey: "a contact card with a damaged key"
            case .invalidEndpoint: "a contact card with a damaged endpoint"
            }
        return usage(what, "copy the whole line that starts with mayfly:card/")
    case .timedOut(let what): return ControlError(.timedOut, what, hint: "give a longer --timeout")
    case .unreachable(let name):
        return unreachable("`\(name)` did not answer", "check that its node runs and that its endpoints are right")
    case .clientIDMismatch(let client):
        return failed("clientIdMismatch: two inboxes named \(client)", "the home is damaged")
    case .unknownInbox(let text): return notFound("no inbox `\(text)`", "`mayfly inbox list` shows the inboxes")
    case .notAConversation(let client):
        return failed(
            "inbox \(client.description.prefix(8)) belongs to no conversation and does not sleep",
            "`mayfly inbox list` shows the others")
    case .stopping: return ControlError(.noNode, "the node is stopping")
    case .unknownUpload(let text): return notFound("there is no upload `\(text)`", "begin with attachment.begin")
    case .tooManyUploads(let limit):
        return failed("\(limit) uploads are in progress already", "try again when one has ended")
    case .noAttachment(let text):
        return notFound("message `\(text)` has no file", "`mayfly read C` shows the messages with a file")
    case .attachmentIncomplete(let id, let count, let total):
        let percent = total == 0 ? 0 : count * 100 / total
        return failed(
            "the file of message \(id.description.prefix(12)) is still being received: \(percent) %",
            "wait for it: `mayfly watch --until messageState:message=\(id.description.prefix(12)),state=received`")
    case .attachmentLost(let id):
        return failed(
            "the file of message \(id.description.prefix(12)) is not here",
            "the transfer failed, or the file is no longer kept; ask for it again")
    case .tooManyRendezvous:
        return failed(
            "\(Limits.rendezvousCount) rendezvous nodes are in use already",
            "remove one: `mayfly peer set NAME rendezvous=off`")
    case .otherMailbox(let name):
        return failed(
            "\(name) is the mailbox already", "a node has one mailbox; first: `mayfly peer set \(name) mailbox=off`")
    case .alias(let refusal): return aliasRefusal(refusal)
    }
}

private func aliasRefusal(_ refusal: AliasRefusal) -> ControlError {
    switch refusal {
    case .taken(let conversation):
        let holder = conversation.map { String($0.description.prefix(12)) }
        let free = holder.map { ", or free this one: `mayfly conversation alias \($0) --remove`" } ?? ""
        return failed(
            "another conversation has this alias, or a similar one\(holder.map { ": \($0)" } ?? "")",
            "choose another alias (create and join take --alias NAME)\(free)")
    case .looksLikeID: return usage("an alias may not look like the beginning of an id", "choose another")
    case .notAnAlias:
        return usage(
            "this is not an alias",
            "use up to \(Limits.nameByteCount) bytes of visible characters, one blank between words, no `-` first")
    }
}

private func commandError(_ error: CommandError) -> ControlError {
    switch error {
    case .unknownConversation:
        return notFound("no such conversation", "`mayfly conversation list` shows the conversations")
    case .notJoined: return failed("the join is still in progress", "`mayfly join list` shows its state")
    case .notCreator: return failed("only the conversation's creator may do this", "ask the creator")
    case .noOtherMember:
        return failed("the conversation has no other member", "invite someone: `mayfly invite create C`")
    case .notConnected:
        return unreachable("the other member is not connected", "wait for it: `mayfly watch C --until peerOnline`")
    case .textTooLong(let count, let limit):
        return usage("the text has \(count) bytes, the limit is \(limit)", "send it in parts")
    case .nameTooLong(let count, let limit): return usage("the name has \(count) bytes, the limit is \(limit)")
    case .invalidName: return usage("a name has at least one visible character and no control characters")
    case .emptyText: return usage("the text is empty")
    case .outboxFull(let limit):
        return failed("the outbox is full: \(limit) messages wait for delivery", "`mayfly outbox list` shows them")
    case .tooManyInvites(let limit):
        return failed("the conversation has \(limit) open invites already", "revoke some, or let them expire")
    case .unknownInvite: return notFound("no such invite")
    case .conversationLocked: return failed("the conversation is locked", "`mayfly conversation unlock C` first")
    case .lifetime(.noProposal):
        return notFound(
            "there is no such open proposal",
            "`mayfly lifetime show C` shows it: `accept` and `reject` answer another member's, `withdraw` ends your own"
        )
    case .lifetime(.otherProposal):
        return failed(
            "another proposal has arrived meanwhile", "`mayfly lifetime show C` shows it; then accept or reject it")
    case .lifetime(.tooSoon(let wait)):
        return failed("the rate limit for proposals is reached", "try again in \((wait + 999) / 1_000) s")
    case .lifetime(.alreadyAgreed(let lifetime)): return failed("\(lifetime.rawValue) is in force already")
    case .lifetime(.alreadyAccepted):
        return failed(
            "you have accepted the open proposal; it waits for the other members",
            "withdraw your acceptance first: `mayfly lifetime reject C`")
    case .lifetime(.invalidTerms):
        return usage("these terms cannot be proposed", "see `mayfly lifetime propose --help`")
    case .inviteExpired(let at): return expired("the invite expired at \(at.iso8601)", "ask for a new one")
    case .ownInvite: return failed("this node made this invite", "give it to someone else")
    case .alreadyMember: return failed("this node is already a member of the conversation, or is joining it")
    case .inboxProtected(let protection):
        return failed(
            "the inbox cannot sleep: \(protection)",
            protection.contains(.unread) ? "`mayfly read C` first" : "try again when that has ended")
    case .unknownMessage: return notFound("no such message in the outbox")
    case .invalidReaction(let limit): return usage("a reaction is an emoji or a short text of at most \(limit) bytes")
    case .invalidContentType(let text):
        return usage("`\(text)` is not a content type", "write it as example.org/poll:1.0")
    case .reservedContentType(let authority):
        return usage(
            "content types of `\(authority)` are reserved for this program",
            "use an authority of yours, such as example.org/poll:1.0")
    case .payloadTooLong(let count, let limit):
        return usage(
            "the payload has \(count) bytes, the limit is \(limit)", "send it as a file: `mayfly send C --file FILE`")
    case .fallbackTooLong(let count, let limit): return usage("the fallback has \(count) bytes, the limit is \(limit)")
    case .fileTooLarge(let limit):
        return usage(
            "the file is larger than \(limit) bytes",
            "split it, or raise attachmentByteCount in config.json of both nodes")
    case .fileTooLargeForMemory(let byteCount, let limit):
        let (size, most) = (Words.size(byteCount), Words.size(limit))
        return failed(
            "the file is \(size == most ? "more than \(size)" : size); without an agreement the limit is \(most)",
            "first: `mayfly lifetime propose C 1d`")
    case .fileMemoryFull(let limit):
        return failed(
            "the memory for files without an agreement is full: \(limit) bytes",
            "agree on a lifetime first, or close a conversation: `mayfly conversation close OTHER`")
    case .agreementChanged: return failed("the agreement changed during the upload", "send it again")
    case .removed:
        return failed(
            "you were removed from this conversation",
            "the messages here stay readable until they expire; `mayfly conversation leave C` destroys them now")
    case .unknownMember: return notFound("no such member")
    }
}

private func storeError(_ error: StoreError) -> ControlError {
    if case .notAHome(let path) = error { return .noHome(path) }
    let kind: FailureKind =
        switch error.kind {
        case .locked: .locked
        case .missing: .notFound
        case .misuse: .usage
        case .passphrase: if case .passphraseNeeded = error { .locked } else { .failed }
        case .busy, .exists, .permission, .readOnly, .full, .damaged, .resources, .io: .failed
        }
    return ControlError(kind, "\(error)", hint: error.advice)
}

private func homeFileError(_ error: HomeFileError, _ correction: String = "correct the file and start again")
    -> ControlError
{
    if [.missing, .malformed].contains(error.kind), let end = error.path.lastIndex(of: "/") {
        let home = ControlSocket(home: String(error.path[..<end]))
        do throws(ControlError) { try home.checkHome() } catch { return error }
    }
    return switch error.kind {
    case .missing: failed("\(error)", "put the file back, or make a new one with `mayfly init`")
    case .malformed: failed("\(error)", correction)
    case .symbolicLink: failed("\(error)", "replace it by a regular file")
    case .busy: failed("\(error)", "try again")
    case .system: failed("\(error)", "check the home's permissions and its disk")
    }
}

private func inviteFailure(_ failure: InviteSlug.Failure) -> ControlError {
    switch failure {
    case .notAnInvite: usage("this is not an invite", "copy the whole text that starts with mayfly:join/")
    case .tooLong: usage("this is too long for an invite")
    case .damaged:
        usage(
            "the invite is damaged: cut off, or a character has changed",
            "copy the whole text that starts with mayfly:join/")
    case .signature:
        // Most typing errors end here, and so does an invite that was altered and signed again.
        usage(
            "the invite is mistyped, cut off or altered: its signature is not valid",
            "copy the whole text that starts with mayfly:join/; if that fails too, ask its creator for a new one")
    }
}

private func codeRefusal(_ refusal: CodeRefusal) -> ControlError {
    switch refusal {
    case .text(.malformed):
        return usage("this is not a code", "a code is a number and two words, such as 7-harvest-lamp")
    case .text(.slot(let number)):
        let slots = SpokenCode.slots
        return usage("the number of a code is \(slots.lowerBound) to \(slots.upperBound), not `\(number)`")
    case .text(.unknownWord(let word, let nearest)):
        return usage(
            "`\(word)` is not a word of a code; perhaps `\(nearest)`", "nothing was sent; the code is still valid")
    case .tooMany(let limit): return failed("\(limit) codes are open already", "wait for one to end: 5 minutes at most")
    case .unknown: return notFound("no such code is open")
    case .nobody(let slot):
        return unreachable(
            "no node on this network has a code with number \(slot) open",
            "name the machine: `mayfly join CODE --at HOST`")
    case .ambiguous(let slot):
        return failed(
            "several nodes on this network have a code with number \(slot) open, and none of them was tried",
            "name the machine: `mayfly join CODE --at HOST`")
    case .discoveryOff:
        return unreachable(
            "this node cannot search for the code: LAN discovery is off",
            "name the machine: `mayfly join CODE --at HOST`")
    case .notReached(let host, let failure):
        return unreachable(
            "\(host) cannot be reached: \(failure.reason)",
            "the code was not tried and is still valid; check the host and its port")
    case .exchange(let failure, let slot): return codeFailure(failure, slot)
    }
}

private func codeFailure(_ failure: CodeFailure, _ slot: UInt16) -> ControlError {
    switch failure {
    case .notOpen:
        notFound(
            "no code with number \(slot) is open there",
            "the code was used, or its 5 minutes are over; ask for a new one")
    case .invalidAnswer: refused("the host that answered is not a node with a code", "ask for a new code")
    case .refused: refused("wrong code", "the code is void now; ask for a new one")
    case .foreign:
        refused(
            "the host that answered does not know the code: another node, or a man in the middle",
            "ask for a new code; do not use this one again")
    }
}

/// - Parameter option: where the user names the listeners.
func listenFailure(_ failure: ListenFailure, _ option: String = "--listen") -> ControlError {
    switch failure {
    case .addressInUse(let endpoint):
        failed(
            "tcp://\(endpoint.host):\(endpoint.port) is in use by another process",
            "choose another port with \(option), or stop the other process")
    case .addressNotAvailable(let endpoint):
        failed("no interface of this machine has the address \(endpoint.host)", "choose another with \(option)")
    case .notPermitted(let endpoint): failed("port \(endpoint.port) requires privileges", "choose one above 1023")
    case .unresolvable(let endpoint): failed("`\(endpoint.host)` is not an address to listen on", "write an IP address")
    case .system(let endpoint, let code):
        failed("cannot listen on tcp://\(endpoint.host):\(endpoint.port): error \(code)")
    }
}

extension String { fileprivate var lowercasedFirst: String { prefix(1).lowercased() + dropFirst() } }

extension DialFailure {
    fileprivate var reason: String {
        switch self {
        case .refused: "nothing listens at that port"
        case .timedOut: "no answer in time"
        case .unreachable: "there is no route to the host"
        case .unresolvable: "the name has no address"
        case .system(let code): "error \(code) of the system"
        case .closedBeforeActTwo, .authenticationFailed, .badAnswer, .cancelled: "the connection ended"
        }
    }
}

// One function for each kind: this file makes a hundred errors.
private func expired(_ message: String, _ hint: String? = nil) -> ControlError { .init(.expired, message, hint: hint) }
private func failed(_ message: String, _ hint: String? = nil) -> ControlError { .init(.failed, message, hint: hint) }
private func notFound(_ message: String, _ hint: String? = nil) -> ControlError {
    .init(.notFound, message, hint: hint)
}
private func refused(_ message: String, _ hint: String? = nil) -> ControlError { .init(.refused, message, hint: hint) }
private func unreachable(_ message: String, _ hint: String? = nil) -> ControlError {
    .init(.unreachable, message, hint: hint)
}
private func usage(_ message: String, _ hint: String? = nil) -> ControlError { .init(.usage, message, hint: hint) }
