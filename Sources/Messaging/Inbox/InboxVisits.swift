/// Counts visited inboxes in tests: a message, a tick and `status` must not visit all inboxes.
package final class InboxVisits {
    /// `nil` while not counting.
    private var clients: Set<ClientID>?

    package init() {}

    package func begin() { clients = [] }

    /// - Returns: the inboxes visited since ``begin()``.
    package func end() -> Set<ClientID> {
        defer { clients = nil }
        return clients ?? []
    }

    package func note(_ client: ClientID) { if clients != nil { clients?.insert(client) } }

    package func note<All: Sequence<ClientID>>(all: @autoclosure () -> All) {
        if clients != nil { clients?.formUnion(all()) }
    }
}
