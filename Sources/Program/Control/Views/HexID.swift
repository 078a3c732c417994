import Control
import Crypto
import Messaging

extension HexID {
    init(_ message: Messaging.MessageID) { self.init(message.value.first, message.value.second) }

    init(_ conversation: ConversationID) {
        let (left, right) = (conversation.value.left, conversation.value.right)
        self.init(left.first, left.second, right.first, right.second)
    }
}
