/// One thing that happened, as subscribers see it: common fields, and the fields of its kind beside them.
package struct Event: Hashable, Sendable {
    /// Increases by one with every event of a node; a subscriber resumes after the last one it saw.
    package let cursor: Int64
    package let event: EventKind
    package let conversation: String?
    package let at: Timestamp
    /// The other fields: for `message` those of ``Message``, for `messageState` `message` and `state`, and so on.
    package let details: [String: JSONValue]

    package init(
        cursor: Int64,
        event: EventKind,
        conversation: String? = nil,
        at: Timestamp,
        details: [String: JSONValue] = [:]
    ) {
        self.cursor = cursor
        self.event = event
        self.conversation = conversation
        self.at = at
        self.details = details
    }

    /// One flat object; a detail never replaces a common field.
    package var jsonValue: JSONValue {
        let common: [String: JSONValue] = [
            "cursor": .integer(cursor), "event": .string(event.rawValue), "at": .string(at.iso8601),
            "conversation": conversation.map(JSONValue.string) ?? .null,
        ]
        return .object(common.merging(details) { common, _ in common })
    }
}
