import DequeModule
import Messaging

/// Links of guests that we have closed and whose other end may still keep them: the last ``Limits/closingGuestCount``.
struct ClosingGuests {
    private var links: Deque<LinkID> = []

    /// - Returns: the link that has to end at once for it, unless it has ended by itself.
    mutating func add(_ link: LinkID) -> LinkID? {
        links.append(link)
        return links.count > Limits.closingGuestCount ? links.removeFirst() : nil
    }
}
