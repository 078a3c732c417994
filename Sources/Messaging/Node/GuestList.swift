import DequeModule

/// Links that came by an invite or a contact card and belong to no member or service. Each may send frames for at most
/// ``Limits/guestStay``.
///
/// Beyond ``Limits/guestCount`` a new guest displaces the oldest, so an attacker with many links cannot keep others
/// out: an honest joiner needs only a round trip or two.
struct GuestList: Sendable {
    private var ends: [LinkID: Timestamp] = [:]
    /// In order of arrival, with some stale links.
    private var order: Deque<LinkID> = []
    /// Links being closed: frames that still arrive on them are ignored.
    private var sentAway: Set<LinkID> = []

    var isEmpty: Bool { ends.isEmpty }
    func contains(_ link: LinkID) -> Bool { ends[link] != nil }
    func hasSentAway(_ link: LinkID) -> Bool { sentAway.contains(link) }

    var nextEnd: Timestamp? { order.lazy.compactMap { ends[$0] }.first }

    /// - Returns: the displaced link.
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

    /// Removes and returns the next guest whose time is over.
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

    private mutating func trim() {
        while let link = order.first, ends[link] == nil { order.removeFirst() }
        if order.count > 2 * ends.count + 16 { order.removeAll { ends[$0] == nil } }
    }
}
