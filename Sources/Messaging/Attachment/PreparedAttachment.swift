import Crypto

/// What a file is sent under: fixed when its user begins to hand it over, since its bytes are kept from then on.
package struct PreparedAttachment: Hashable, Sendable {
    package let message: MessageID
    package let sentAt: Timestamp
    package let agreement: AgreementID?
    package let expiresAt: Timestamp?
    package let keeping: NodeAction.Keeping
}
