import ArgumentParser
import Control
import Messaging
import NodeRuntime

struct InboxCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inbox", abstract: "Inboxes: one for each conversation.",
        discussion: """
            Examples:
              mayfly inbox list
              mayfly inbox sleep 0c9a
              mayfly inbox rebalance
            """, subcommands: [List.self, Call<Wake>.self, Call<Sleep>.self, Rebalance.self])

    static func table(_ inboxes: [Inbox], _ terminal: Terminal) {
        let now = wallClock()
        terminal.table(
            ["INBOX", "STATE", "WOKEN BY", "LAST ACTIVITY", "PROTECTED"],
            inboxes.map { inbox in
                [
                    short(inbox.inbox), inbox.state, inbox.wakeReason ?? "-", shown(inbox.lastActivity, now: now),
                    inbox.protected ? "yes" : "no",
                ]
            })
        if inboxes.isEmpty { terminal.note("no inboxes") }
    }
}

extension InboxCommand {
    struct List: NodeCommand {
        static let configuration = CommandConfiguration(commandName: "list", abstract: "List the inboxes.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try callList(Methods.inboxList, Nothing(), "inboxes", terminal) { InboxCommand.table($0, terminal) }
        }
    }

    enum Wake: MethodAction {
        static let configuration = CommandConfiguration(commandName: "wake", abstract: "Wake an inbox.")
        static let method = Methods.inboxWake
    }

    enum Sleep: MethodAction {
        static let configuration = CommandConfiguration(commandName: "sleep", abstract: "Put an inbox to sleep.")
        static let method = Methods.inboxSleep
    }
    struct Rebalance: NodeCommand {
        static let configuration = CommandConfiguration(
            commandName: "rebalance", abstract: "Wake the most recently active inboxes, put the others to sleep.")

        @OptionGroup var global: GlobalOptions

        func perform(_ terminal: Terminal) throws {
            try call(Methods.inboxRebalance, Nothing(), terminal) { result in
                terminal.fields([
                    ("woken", String(result.woken)), ("put to sleep", String(result.slept)),
                    ("capacity", String(result.capacity)),
                ])
            }
        }
    }
}

func checkedCapacity(_ capacity: Int?) throws(ControlError) -> Int? {
    guard let capacity else { return nil }
    guard (1...Limits.inboxCapacityMaximum).contains(capacity) else {
        throw ControlError(
            .usage, "--capacity: \(capacity) is not a number from 1 to \(Limits.inboxCapacityMaximum)",
            hint: "leave it out for \(Limits.inboxCapacity)")
    }
    return capacity
}

func checkedDiscovery(_ text: String?) throws(ControlError) -> DiscoverySetting? {
    guard let text else { return nil }
    guard let setting = DiscoverySetting(text) else {
        throw ControlError(.usage, "--discover: `\(text)` is not known", hint: "say lan, lan:INTERFACE,… or off")
    }
    return setting
}

extension Inbox: ShownRecord { func show(_ terminal: Terminal) { InboxCommand.table([self], terminal) } }
