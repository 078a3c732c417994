import Cryptography
import Messaging

/// The node around a core under test: empty, with room for everything, unless a test gives another answer.
package final class TestSurroundings: Surroundings {
    package var known: (MessageID, ClientID) -> Bool = { _, _ in false }
    package var messages: (MessageID) -> Message? = { _ in nil }
    package var stored: (MessageID) -> Bool = { _ in false }
    package var awaiting: (MessageID) -> Bool = { _ in false }
    package var shown: (MessageID) -> Bool = { _ in false }
    package var read: (MessageID) -> Bool = { _ in false }
    package var chunks: (MessageID, Int) -> Bool = { _, _ in false }
    package var hasRoom = true
    package var hasRoomForFiles = true
    package var namedPeers: (PublicKey) -> Bool = { _ in false }
    package var sources: (LinkID) -> UInt64? = { _ in nil }
    package var slots: (BoxID) -> KeptSlots? = { _ in KeptSlots([]) }
    package var sleeperKeys: [ClientID: IdentityKey] = [:]

    package init() {}

    package func isKnown(_ message: MessageID, _ client: ClientID) -> Bool { known(message, client) }
    package func message(_ message: MessageID, _ client: ClientID) -> Message? { messages(message) }
    package func deliveries(of message: MessageID, _ client: ClientID) -> [Delivery] {
        messages(message)?.deliveries ?? []
    }
    package func isStored(_ message: MessageID, _ client: ClientID) -> Bool { stored(message) }
    package func awaitsStorage(_ message: MessageID, _ client: ClientID) -> Bool { awaiting(message) }
    package func wasShown(_ message: MessageID, _ client: ClientID) -> Bool { shown(message) }
    package func wasRead(_ message: MessageID, _ client: ClientID) -> Bool { read(message) }
    package func hasChunk(_ index: Int, of message: MessageID, _ client: ClientID) -> Bool { chunks(message, index) }
    package func hasRoom(_ client: ClientID) -> Bool { hasRoom }
    package func hasRoom(for byteCount: Int64, _ client: ClientID) -> Bool { hasRoomForFiles }
    package var memoryAvailable: Int64 { Limits.attachmentMemoryTotalByteCount }
    package func isNamedPeer(_ key: PublicKey) -> Bool { namedPeers(key) }
    package func source(of link: LinkID) -> UInt64? { sources(link) }
    package func keptSlots(of box: BoxID) -> KeptSlots? { slots(box) }
    package func sleeperKey(_ client: ClientID) -> IdentityKey? { sleeperKeys[client] }
}

extension Turn {
    package init(now: Timestamp, random: Randomness, endpoints: [Endpoint] = [], isLocked: Bool = false) {
        self.init(now: now, random: random, endpoints: endpoints, isLocked: isLocked, node: TestSurroundings())
    }

    package var around: TestSurroundings { node as! TestSurroundings }
}
