import Control

/// One event as subscribers see it: the common fields and the fields of its kind.
struct Event: Hashable, Sendable {
    /// Increases by one with each event of a node. A subscriber resumes after the last cursor it saw.
    let cursor: Int64
    let event: EventKind
    let conversation: HexID?
    let at: Timestamp
    /// Client id; in inbox events only.
    let inbox: String?
    let details: Details

    enum Details: Hashable, Sendable {
        case fields([Field])
        case message(Message)
    }

    struct Field: Hashable, Sendable {
        let name: String
        let value: Value

        init(_ name: String, _ value: Value) {
            self.name = name
            self.value = value
        }
    }

    enum Value: Hashable, Sendable {
        case id(HexID)
        case text(String)
        case number(Int64)
        case flag(Bool)
        case interval(Interval)
        case null
    }

    init(
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

    var jsonValue: JSONValue { JSONValue(of: self) }
}

extension Event: JSONWritable {
    /// Writes one flat object; a detail never replaces a common field.
    func write(to writer: inout JSONWriter) {
        writer.object { fields in
            fields.leavesOutDuplicates = true
            fields.member("cursor", cursor)
            fields.member("event", event)
            fields.member("at", at)
            fields.member("conversation", OrNull(wrappedValue: conversation))
            if let inbox { fields.member("inbox", inbox) }
            switch details {
            case .message(var message): message.visit(&fields)
            case .fields(let details): for detail in details { fields.member(detail.name, detail.value) }
            }
        }
    }
}

extension Event.Value: JSONWritable {
    func write(to writer: inout JSONWriter) {
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
    init(dictionaryLiteral elements: (String, Event.Value)...) { self = .fields(elements.map { Event.Field($0, $1) }) }
}
