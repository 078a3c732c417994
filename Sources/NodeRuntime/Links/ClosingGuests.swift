import DequeModule
import Messaging

/// Guest links that we closed and the peer may keep open: the last ``Limits/closingGuestCount``.
struct ClosingGuests {
    private var links: Deque<LinkID> = []

    /// - Returns: the oldest link, to abort at once, when the limit is exceeded.
    mutating func add(_ link: LinkID) -> LinkID? {
        links.append(link)
        return links.count > Limits.closingGuestCount ? links.removeFirst() : nil
    }
}
