import DequeModule

/// Links of those who came by an invite or a contact card, and with whom we have no business of our own. Each may speak, but
/// not sit here: it stays for ``Limits/guestStay``, and shorter when others come.
///
/// Beyond ``Limits/guestCount`` a new guest takes the place of the one that has been here longest, so that whoever fills the
/// house keeps nobody out: an honest joiner needs a round trip or two.
struct GuestList: Sendable {
    private var ends: [LinkID: Timestamp] = [:]
    /// In the order of their coming, and some that have left since.
    private var order: Deque<LinkID> = []
    /// Those whose link was closed, until it is gone: what it still brings is not heard.
    private var sentAway: Set<LinkID> = []

    var isEmpty: Bool { ends.isEmpty }
    func contains(_ link: LinkID) -> Bool { ends[link] != nil }
    func hasSentAway(_ link: LinkID) -> Bool { sentAway.contains(link) }

    /// When the next one has stayed long enough.
    var nextEnd: Timestamp? { order.lazy.compactMap { ends[$0] }.first }

    /// - Returns: the link whose place is taken.
    mutating func welcome(_ link: LinkID, now: Timestamp) -> LinkID? {
        ends[link] = now + Limits.guestStay
        order.append(link)
        let displaced = ends.count > Limits.guestCount ? takeFirst { _ in true } : nil
        trim()
        return displaced
    }

    mutating func leave(_ link: LinkID) {
        sentAway.remove(link)
        guard ends.removeValue(forKey: link) != nil else { return }
        trim()
    }

    /// The next one that has stayed long enough. It is none any more.
    mutating func takeOverdue(now: Timestamp) -> LinkID? { takeFirst { $0 <= now } }

    private mutating func takeFirst(where condition: (Timestamp) -> Bool) -> LinkID? {
        while let link = order.first {
            guard let end = ends[link] else {
                order.removeFirst()
                continue
            }
            guard condition(end) else { return nil }
            order.removeFirst()
            ends[link] = nil
            sentAway.insert(link)
            return link
        }
        return nil
    }

    /// Those that have left are forgotten.
    private mutating func trim() {
        while let link = order.first, ends[link] == nil { order.removeFirst() }
        if order.count > 2 * ends.count + 16 { order.removeAll { ends[$0] == nil } }
    }
}
