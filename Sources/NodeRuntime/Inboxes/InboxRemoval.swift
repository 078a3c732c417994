import Logging
import Messaging
import Store

/// Destroys inboxes: keys on the disk, and state in memory.
final class InboxRemoval: Part {
    /// - Returns: why the keys may still exist; the store retries.
    @discardableResult func destroy(_ client: ClientID) -> StoreError? {
        guard let inbox = inboxes[client] else {
            if core.machine.contains(client) { core.machine.remove(client) }
            return nil
        }
        var failure: StoreError?
        do throws(StoreError) { try store.destroyRow(inbox.row) } catch {
            failure = error
            storage.refusal = error
            log.critical("an inbox's keys could not be destroyed; trying again", metadata: ["error": "\(error)"])
        }
        letGo(inbox)
        return failure
    }

    /// Wipes the memory of an inbox whose keys are gone. Open links stay until their closing frame is sent.
    func letGo(_ inbox: Inbox) {
        let client = inbox.client
        inboxes.remove(inbox)
        inboxes.forgetNotes(of: inbox)
        inbox.key = nil
        inbox.deferred = []
        inbox.unarmedEnd = nil
        shell.uploads.cancelAll(into: client)
        inbox.verifications = [:]
        inbox.archive.forget()
        shell.routes.unregisterAll(inbox)
        // Effects that wait for this inbox's commit need not wait any more.
        shell.held.drop(inbox, isDurable: true)
        shell.output.resume(inbox)
        if core.machine.contains(client) { core.machine.remove(client) }
    }
}
