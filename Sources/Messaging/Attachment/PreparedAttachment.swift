import Crypto

/// The id, time and terms of a file, fixed when its upload begins, since its bytes are kept from then on.
package struct PreparedAttachment: Hashable, Sendable {
    package let message: MessageID
    package let sentAt: Timestamp
    package let agreement: AgreementID?
    package let expiresAt: Timestamp?
    package let keeping: NodeAction.Keeping
}
