/// One event as subscribers see it: the common fields and the fields of its kind.
package struct Event: Hashable, Sendable {
    /// Increases by one with each event of a node. A subscriber resumes after the last cursor it saw.
    package let cursor: Int64
    package let event: EventKind
    package let conversation: HexID?
    package let at: Timestamp
    /// Client id; in inbox events only.
    package let inbox: String?
    package let details: Details

    package enum Details: Hashable, Sendable {
        case fields([Field])
        case message(Message)
    }

    package struct Field: Hashable, Sendable {
        package let name: String
        package let value: Value

        package init(_ name: String, _ value: Value) {
            self.name = name
            self.value = value
        }
    }

    package enum Value: Hashable, Sendable {
        case id(HexID)
        case text(String)
        case number(Int64)
        case flag(Bool)
        case interval(Interval)
        case null
    }

    package init(
        cursor: Int64, event: EventKind, conversation: HexID? = nil, at: Timestamp, inbox: String? = nil,
        details: Details = .fields([])
    ) {
        self.cursor = cursor
        self.event = event
        self.conversation = conversation
        self.at = at
        self.inbox = inbox
        self.details = details
    }

    package var jsonValue: JSONValue { JSONValue(of: self) }
}

extension Event: JSONWritable {
    /// Writes one flat object; a detail never replaces a common field.
    package func write(to writer: inout JSONWriter) {
        writer.object { fields in
            fields.leavesOutDuplicates = true
            fields.member("cursor", cursor)
            fields.member("event", event)
            fields.member("at", at)
            if let conversation { fields.member("conversation", conversation) } else { fields.null("conversation") }
            if let inbox { fields.member("inbox", inbox) }
            switch details {
            case .message(var message): message.visit(&fields)
            case .fields(let details): for detail in details { fields.member(detail.name, detail.value) }
            }
        }
    }
}

extension Event.Value: JSONWritable {
    package func write(to writer: inout JSONWriter) {
        switch self {
        case .id(let value): value.write(to: &writer)
        case .text(let value): writer.string(value)
        case .number(let value): writer.integer(value)
        case .flag(let value): value.write(to: &writer)
        case .interval(let value): value.write(to: &writer)
        case .null: writer.literal("null")
        }
    }
}

extension Event.Details: ExpressibleByDictionaryLiteral {
    package init(dictionaryLiteral elements: (String, Event.Value)...) {
        self = .fields(elements.map { Event.Field($0, $1) })
    }
}
