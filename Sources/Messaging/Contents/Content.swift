import Cryptography

/// `authority/type:major.minor`.
package struct ContentType: Hashable, Sendable, Codable, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }

    package static let text = ContentType("mayfly/text:1.0")
    package static let systemMessage = ContentType("mayfly/system:1.0")
    package static let joinRequest = ContentType("mayfly/join_request:1.0")
    package static let welcome = ContentType("mayfly/welcome:1.0")
    package static let joinError = ContentType("convos.org/invite_join_error:1.0")
    package static let explodeSettings = ContentType("convos.org/explode_settings:1.0")
    package static let deletionReceipt = ContentType("mayfly/deletion_receipt:1.0")
    package static let lifetimeProposal = ContentType("mayfly/lifetime_proposal:1.0")
    package static let lifetimeAccept = ContentType("mayfly/lifetime_accept:1.0")
    package static let lifetimeReject = ContentType("mayfly/lifetime_reject:1.0")
    package static let lifetimeWithdraw = ContentType("mayfly/lifetime_withdraw:1.0")
    package static let invitation = ContentType("mayfly/invitation:1.0")
    package static let memberLeft = ContentType("mayfly/member_left:1.0")
    package static let reply = ContentType("mayfly/reply:1.0")
    package static let reaction = ContentType("mayfly/reaction:1.0")
    package static let attachment = ContentType("mayfly/attachment:1.0")
    package static let receipt = ContentType("mayfly/receipt:1.0")
    package static let joinCancelled = ContentType("mayfly/join_cancelled:1.0")
    package static let groupUpdated = ContentType("mayfly/group_updated:1.0")
    package static let profile = ContentType("mayfly/profile:1.0")
    package static let lifetimeAgreement = ContentType("mayfly/lifetime_agreement:1.0")
    package static let lifetimeEnded = ContentType("mayfly/lifetime_ended:1.0")
}

/// A chat content with its envelope (Delivery.md, "Content types").
package struct Content: Hashable, Sendable {
    package var type: ContentType
    package var id: MessageID
    /// By the sender's clock; for display only.
    package var sentAt: Timestamp
    package var lifetime: Lifetime
    /// The agreement under which it was sent; `nil` when ephemeral.
    package var agreement: AgreementID?
    /// Shown by a receiver that does not know the type.
    package var fallback: String
    /// Whether to notify the user. Watchers get an event for every message.
    package var shouldPush: Bool
    /// At most ``Limits/payloadByteCount`` bytes in the format of ``type``. Empty when ``body`` holds everything.
    package var payload: [UInt8]
    package var body: ContentBody

    package init(
        type: ContentType, id: MessageID, sentAt: Timestamp, lifetime: Lifetime, agreement: AgreementID?,
        fallback: String, shouldPush: Bool, payload: [UInt8], body: ContentBody = .opaque
    ) {
        (self.type, self.id, self.sentAt, self.lifetime, self.agreement) = (type, id, sentAt, lifetime, agreement)
        (self.fallback, self.shouldPush, self.payload, self.body) = (fallback, shouldPush, payload, body)
    }
}

package struct AgedContent: Hashable, Sendable {
    package var content: Content
    /// At transmission, by the sender's clock.
    package var age: Milliseconds

    package init(_ content: Content, age: Milliseconds) {
        self.content = content
        self.age = age
    }
}

/// State of a message of ours, or of another member.
package enum DeliveryState: String, Sendable, Hashable, Codable {
    /// Waits for a link, or for room in flight.
    case queued
    /// In flight, not acknowledged.
    case sent
    /// In the mailbox of every member that has not acknowledged it.
    case mailed
    /// Acknowledged end to end.
    case delivered
    case expiredUndelivered = "expiredUndelivered"
    case cancelled
    case received
    /// All members that it was sent to and that are still members have sent read receipts.
    case read
    /// From another member; its file is still incomplete here.
    case receiving
    /// A file that did not arrive whole, or that a receiver refused.
    case failed

    /// For our own message: a member has yet to acknowledge it.
    package var isWaiting: Bool {
        switch self {
        case .queued, .sent, .mailed: true
        case .delivered, .expiredUndelivered, .cancelled, .received, .read, .receiving, .failed: false
        }
    }
}

/// A message as the archive keeps it, in memory or on the disk.
package struct Message: Hashable, Sendable {
    package var content: Content
    /// `nil` for our own and for system messages.
    package var sender: PublicKey?
    /// ``DeliveryState/received`` at first for messages of others.
    package var state: DeliveryState
    /// When it stops being readable; `nil` when ephemeral.
    package var expiresAt: Timestamp?
    /// For our own message: its state at each member, in the order of their keys.
    package var deliveries: [Delivery] = []
    /// How reading changes ``expiresAt``; `nil`: not at all.
    package var onReading: Retention.OnReading?

    package init(
        content: Content, sender: PublicKey?, state: DeliveryState, expiresAt: Timestamp?,
        onReading: Retention.OnReading? = nil
    ) {
        (self.content, self.sender, self.state, self.expiresAt) = (content, sender, state, expiresAt)
        self.onReading = onReading
    }

    /// Approximate size in memory, in bytes.
    package var byteCount: Int { content.payload.count + content.body.byteCount + content.fallback.utf8.count + 256 }
}
