import Control
import Messaging

extension ChatModel {
    mutating func happened(_ event: JSONValue) -> [ChatEffect] {
        guard let kind = event["event"]?.stringValue.flatMap(EventKind.init(rawValue:)) else { return [] }
        switch kind {
        case .locked: return locked()
        case .unlocked: return unlocked()
        case .gap: return ask(.conversations) + ask(.joins) + (currentID.map { refresh($0) } ?? [])
        default: break
        }
        if isNoticePassing { notice = nil }
        let at = event["at"]?.stringValue.flatMap { Timestamp(iso8601: $0) } ?? now
        guard let id = event["conversation"]?.stringValue, room(id) != nil else {
            return ask(.conversations) + ask(.joins)
        }
        let member = event["member"]?.stringValue
        func name() -> String { member.flatMap { room(id)?.name(of: $0) } ?? "a member" }
        func say(_ text: String) { change(id) { $0.note(text, at: at) } }
        switch kind {
        case .message: return arrived(event, id)
        case .messageState, .messageDelivery, .messageExpired, .attachmentProgress: return refreshMessages(id)
        case .messagesMissed:
            say("\(name()) has dropped messages before they reached you")
            return []
        case .twoCopies:
            let isOurs = event["ours"] == .bool(true)
            say(isOurs ? Words.copies(reportedBy: name()) : Words.copies(of: name()))
            return []
        case .lifetimeProposed, .lifetimeSigned, .lifetimeWithdrawn: return ask(.lifetime(id))
        case .lifetimeExpired:
            say("the proposal has expired without an answer")
            return ask(.lifetime(id))
        case .lifetimeRejected:
            say("the proposal was rejected")
            return ask(.lifetime(id))
        case .lifetimeAgreed:
            change(id) { $0.endedLifetime = nil }
            return ask(.lifetime(id)) + refreshMessages(id)
        case .lifetimeReset, .lifetimeSuspended:
            let previous = event["previous"]?.stringValue.flatMap(Lifetime.init(rawValue:))
            if let previous, previous != .ephemeral { change(id) { $0.endedLifetime = previous } }
            return ask(.lifetime(id)) + refreshMessages(id)
        case .memberJoined, .memberLeft, .memberRemoved, .removed: return ask(.conversation(id)) + ask(.lifetime(id))
        case .profileChanged, .conversationUpdated, .peerOnline, .peerOffline:
            return ask(.conversation(id)) + (room(id)?.isExploded ?? false ? ask(.explosion(id)) : [])
        case .groupConflict:
            say("the creator has signed two different states of this conversation")
            return []
        case .exploded:
            change(id) { $0.forget() }
            if currentID == id { forgetWhatIsShown() }
            return ask(.explosion(id)) + [.bell]
        case .explosionScheduled, .explosionReminder: return ask(.conversation(id)) + ask(.explosion(id))
        case .deletionReceipt: return ask(.explosion(id))
        case .joined, .joinFailed, .joinValidated, .invited: return ask(.conversations) + ask(.joins)
        case .joinRequested, .inboxAwake, .inboxAsleep, .codeEnded, .locked, .unlocked, .gap: return []
        }
    }

    /// Removes all messages, names and drafts from the screen and from memory.
    mutating func locked() -> [ChatEffect] {
        guard !isLocked else { return [] }
        lock = .closed(hasDropped: false)
        rooms = []
        joins = []
        forgetList()
        forgetWhatIsShown()
        // The plain chat has no page for the locked state.
        return refuse("the storage is locked: `mayfly unlock` opens it")
    }

    private mutating func unlocked() -> [ChatEffect] {
        lock = nil
        notice = nil
        return ask(.conversations) + ask(.joins)
    }

    private mutating func forgetWhatIsShown() {
        selection = nil
        search = nil
        question = nil
        overlay = nil
        notice = nil
    }

    private mutating func arrived(_ event: JSONValue, _ id: String) -> [ChatEffect] {
        if currentID == id {
            if room?.position != .newest, event["member"]?.stringValue != nil, event["reactsTo"] == nil {
                change(id) { $0.newBelow += 1 }
            }
            return ask(.messages(id))
        }
        guard event["member"]?.stringValue != nil, event["reactsTo"] == nil else { return [] }
        let isFirst = room(id)?.unreadCount == 0
        change(id) { $0.unreadCount += 1 }
        // Once per room, not per message.
        return isFirst ? [.bell] : []
    }

    /// Only for the room on the screen, because `read` marks messages as read.
    private mutating func refreshMessages(_ id: String) -> [ChatEffect] { currentID == id ? ask(.messages(id)) : [] }

    mutating func done(_ action: ChatRequest.Action, _ value: JSONValue) throws(JSONMismatch) -> [ChatEffect] {
        switch action {
        case .send(let id, let text, _):
            // Only the open room gets a list that shows the text.
            let isOpen = id == currentID
            if let text { change(id) { $0.answered(text, isSent: isOpen) } }
            return refreshMessages(id)
        case .invite(let id):
            let invite = try value.decoded(as: Invite.self)
            let until = invite.expiresAt.map { " until \(Words.time($0, now: now, calendar))" } ?? ""
            overlay = .invite(
                title: "Invitation to \(room(id)?.title ?? "the conversation")",
                lines: [
                    "Valid\(until), for \(invite.singleUse ? "one member" : "several members"). On the other machine:",
                    "", "mayfly join '\(invite.slug ?? "")'", "", "q shows it as a QR code",
                ], url: invite.slug ?? "")
            return []
        case .code(let id):
            let made = try value.decoded(as: InviteCodeResult.self)
            let place = made.endpoints.first { $0.hasPrefix("tcp://") }.map { String($0.dropFirst(6)) } ?? "ADDRESS"
            let until = made.expiresAt.map { Words.time($0, now: now, calendar) } ?? "it is used"
            overlay = .text(
                title: "A code for \(room(id)?.title ?? "the conversation")",
                lines: [
                    "Say the code aloud to one person. It admits one member, until \(until).", "", made.code, "",
                    "On the other machine: mayfly join \(made.code) --at \(place)",
                ])
            return []
        case .join(let from):
            let join = try value.decoded(as: JoinStatus.self)
            switch join.state {
            case .ready:
                goOn(to: join.conversation, called: join.alias ?? join.name, from: from)
                return ask(.conversations) + ask(.joins)
            case .joinFailed: notice = (safe(join.message ?? "the join failed"), true)
            case .validated where currentID == from && editor.isEmpty && question == nil: question = .invitation(join)
            case .invited, .validating, .validated, .joining, .cancelled: break
            }
            return ask(.joins)
        case .create(let from):
            let made = try value.decoded(as: ConversationCreateResult.self)
            goOn(to: made.conversation, called: made.alias ?? made.name, from: from)
            return ask(.conversations)
        case .decline:
            notice = ("declined", false)
            return ask(.joins)
        case .explode(let id): return ask(.conversation(id)) + ask(.explosion(id))
        case .leave(let id):
            rooms.removeAll { $0.id == id }
            return open(nil)
        case .unlock: return []
        case .say(let text):
            notice = (text, false)
            return currentID.map { ask(.conversation($0)) + ask(.lifetime($0)) } ?? []
        }
    }

    /// Opens a new room, unless the user has switched rooms meanwhile.
    private mutating func goOn(to id: String?, called name: String?, from: String?) {
        if currentID == from, editor.isEmpty, question == nil {
            wantedRoom = id
        } else {
            let name = safe(name ?? id.map { String($0.prefix(12)) } ?? "")
            notice = ("\(name) is ready: /open \(name)", false)
        }
    }
}
