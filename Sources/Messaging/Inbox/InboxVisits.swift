/// Which inboxes were looked at. A message, a tick and `status` must not look at all of them; tests count.
package final class InboxVisits {
    /// `nil` while nothing counts.
    private var clients: Set<ClientID>?

    package init() {}

    package func begin() { clients = [] }

    /// - Returns: the inboxes that were looked at since ``begin()``.
    package func end() -> Set<ClientID> {
        defer { clients = nil }
        return clients ?? []
    }

    package func note(_ client: ClientID) { if clients != nil { clients?.insert(client) } }

    package func note<All: Sequence<ClientID>>(all: @autoclosure () -> All) {
        if clients != nil { clients?.formUnion(all()) }
    }
}
