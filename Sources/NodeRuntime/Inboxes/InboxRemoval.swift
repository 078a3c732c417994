import Logging
import Messaging
import Store

/// The end of inboxes: their keys on the disk, and what is in memory of them.
final class InboxRemoval: CorePart {
    let core: ProtocolCore
    private let routes: Routes
    private let output: LinkOutput
    private let held: HeldEffects
    private let uploads: Uploads

    init(_ core: ProtocolCore, _ routes: Routes, _ output: LinkOutput, _ held: HeldEffects, _ uploads: Uploads) {
        self.core = core
        self.routes = routes
        self.output = output
        self.held = held
        self.uploads = uploads
    }

    /// The inbox goes without a trace.
    /// - Returns: why the keys may still be there; the store tries again.
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

    /// Wipes what is in memory of an inbox whose keys are gone. Open links stay until they have said why.
    func letGo(_ inbox: Inbox) {
        let client = inbox.client
        inboxes.remove(inbox)
        inboxes.forgetNotes(of: inbox)
        inbox.key = nil
        inbox.deferred = []
        inbox.unarmedEnd = nil
        uploads.cancelAll(into: client)
        inbox.verifications = [:]
        inbox.archive.forget()
        routes.unregisterAll(inbox)
        // What waited for this inbox's disk has nothing to wait for any more.
        held.drop(inbox, isDurable: true)
        output.resume(inbox)
        if core.machine.contains(client) { core.machine.remove(client) }
    }
}
