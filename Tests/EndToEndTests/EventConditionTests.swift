import Control
import Testing

import enum Messaging.DeliveryState

@testable import Program

@Suite("Conditions of `watch --until`") struct EventConditionTests {
    private func condition(_ text: String) throws -> EventCondition { try #require(EventCondition(argument: text)) }

    private let id = "4f1c09ab3d2e55aa"

    @Test(
        "A possible condition is accepted",
        arguments: [
            "message", "message:member=4f1c09ab3d2e,text=hello,stored=true", "message:text=", "gap:lost=3",
            "messageState:message=4F1C,state=delivered", "message:conversation=4f1c,cursor=7",
            "lifetimeReset:previous=1d", "message:inbox=99b7f785-d1b1-4558-b204-0c58e1327711",
            "lifetimeProposed:lifetime=7d,timer=read,ours=false", "memberJoined:profile=Bob",
            "joinFailed:message=An error", "lifetimeAgreed:agreement=4f1c,automatic=true",
        ]) func possible(_ text: String) throws
    { try condition(text).check() }

    @Test(
        "An impossible condition is refused, with the possible ones",
        arguments: [
            ("message:msg=4f1c", "member"), ("messageState:state=delivred", "delivered"),
            ("messageState:state=Delivered", "delivered"), ("message:conversation=room", "mayfly watch NAME"),
            ("message:member=bob", "profile"), ("messageState:message=4f1", "at least 4"),
            ("message:message=", "at least 4"), ("lifetimeAgreed:mailbox=floppy", "ram"),
            ("message:stored=yes", "true"), ("exploded:member=4f1c", "conversation"), ("message:,text=a", "member"),
        ]) func impossible(_ text: String, _ hint: String) throws
    {
        let error = try #require(throws: ControlError.self) { try condition(text).check() }
        #expect(error.kind == .usage && error.hint?.contains(hint) == true, "\(error)")
    }

    @Test func `An id matches in capitals and by its prefix`() throws {
        let event: JSONValue = ["event": "messageState", "message": .string(id), "state": "sent"]
        for text in ["message=4f1c", "message=4F1C09", "message=\(id),state=sent"] {
            #expect(try condition("messageState:\(text)").matches(event))
        }
        #expect(try !condition("messageState:message=4f1d").matches(event))
        #expect(try !condition("messageState:message=\(id),state=delivered").matches(event))
        #expect(try !condition("message:text=HELLO").matches(["event": "message", "text": "hello"]))
        #expect(try condition("joinFailed:message=No").matches(["event": "joinFailed", "message": "No"]))
        #expect(try !condition("joinFailed:message=An e").matches(["event": "joinFailed", "message": "An error"]))
    }

    @Test func `A comma belongs to the value unless a field follows it`() throws {
        let event: JSONValue = ["event": "message", "text": "hello, bob, a=b,", "from": "ann, x"]
        for text in ["text=hello, bob, a=b,", "text=hello, bob, a=b,,from=ann, x", "from=ann, x,text=hello, bob, a=b,"]
        {
            let condition = try condition("message:\(text)")
            try condition.check()
            #expect(condition.matches(event), "\(text)")
        }
        #expect(try !condition("message:text=hello").matches(event))
        // A misspelt field is not taken as part of the text before it.
        #expect(throws: ControlError.self) { try condition("message:text=hello,membr=4f1c").check() }
    }

    @Test func `Every listed state of a message exists`() {
        #expect(Message.states.allSatisfy { DeliveryState(rawValue: $0) != nil })
    }
}
