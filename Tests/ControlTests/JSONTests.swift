import Control
import Testing

import struct Messaging.LifetimeTerms

@testable import Program

@Suite struct JSONTests {
    private func read(_ text: String) throws -> JSONValue { try JSONReader.read(Array(text.utf8)) }

    @Test(arguments: [
        #"null"#, #"true"#, #"-7"#, #"9223372036854775807"#, #"1.5"#, #""a\"b\\c\n""#, #"[]"#, #"{}"#,
        #"[1,[2,[3]],{"a":null}]"#, #"{"a":1,"b":"ü€😀"}"#,
    ]) func `JSON text is unchanged after reading and writing`(text: String) throws {
        #expect(try read(text).text == text)
    }

    @Test func `escapes and surrogate pairs are decoded`() throws {
        #expect(try read(#""A\u00fc\uD83D\uDE00\/\t""#) == "Aü😀/\t")
    }

    @Test func `equal objects have equal text`() throws {
        #expect(try read(#"{ "b" : 1 , "a" : 2 }"#).text == #"{"a":2,"b":1}"#)
    }

    @Test func `control characters are escaped in output`() {
        #expect(JSONValue.string("\u{1}\u{1b}\u{7f}").text == #""\u0001\u001b\u007f""#)
        #expect(JSONValue.string("\u{80}a\u{9b}31m\u{9f}").text == #""\u0080a\u009b31m\u009f""#)
        #expect(JSONValue.object(["\u{85}": 1]).text == #"{"\u0085":1}"#)
    }

    @Test func `line separators and direction marks are escaped in output`() {
        #expect(JSONValue.string("a\u{2028}b\u{2029}").text == #""a\u2028b\u2029""#)
        #expect(
            JSONValue.string("\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}").text
                == #""\u061c\u200e\u200f\u202a\u202e\u2066\u2069""#)
        // Their neighbours are ordinary characters.
        for text in [
            "\u{a0}", "\u{bf}", "\u{61b}", "\u{61d}", "\u{200d}", "\u{2010}", "\u{2027}", "\u{202f}", "\u{2065}",
            "\u{206a}",
        ] { #expect(JSONValue.string(text).text == "\"\(text)\"") }
    }

    @Test func `every character is read back unchanged from its written text`() throws {
        for value in (0...0x3000).map({ UInt32($0) }) + [0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0x1F600, 0x10FFFF] {
            guard let scalar = Unicode.Scalar(value) else { continue }
            let text = "<\(String(scalar))>"
            let written = JSONValue.string(text).utf8
            #expect(try JSONReader.read(written) == .string(text), "U+\(String(value, radix: 16))")
            #expect(!written.contains { $0 < 0x20 || $0 == 0x7F })
        }
    }

    @Test(arguments: [
        "", " ", "nul", "tru", "{", "[1", "[1,]", "{,}", #"{"a"}"#, #"{"a":}"#, #"{"a":1,}"#, "01", "-", "1.", "1e",
        "+1", ".5", #"""#, #""\x""#, #""\u12""#, #""\ud800""#, #""\ud800A""#, "\"\u{1}\"", "1 2", "[1]]", "'a'", "NaN",
        "1e999", #"{"a":1,"a":2}"#, "\u{feff}1",
    ]) func `invalid JSON is refused`(text: String) { #expect(throws: JSONSyntaxError.self) { try read(text) } }

    @Test func `a text truncated at any byte is refused`() throws {
        let whole = Array(#"{"id":12,"m":"é\u00e9","p":[true,{"x":null}]}"#.utf8)
        for byteCount in 0..<whole.count {
            #expect(throws: JSONSyntaxError.self) { try JSONReader.read(whole.prefix(byteCount)) }
        }
    }

    @Test func `bytes that are not UTF-8 are refused`() {
        #expect(throws: JSONSyntaxError.self) { try JSONReader.read([0x22, 0xC3, 0x28, 0x22]) }
    }

    @Test func `nesting is accepted up to the limit only`() throws {
        let limit = ControlLimits.nestingDepth
        func nested(_ depth: Int) -> String {
            String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
        }
        _ = try read(nested(limit))
        #expect(throws: JSONSyntaxError.tooDeep(limit: limit)) { try read(nested(limit + 1)) }
        #expect(throws: JSONSyntaxError.tooDeep(limit: limit)) { try read(String(repeating: "[", count: 1_000_000)) }
        #expect(throws: JSONSyntaxError.tooDeep(limit: limit)) {
            try read(String(repeating: #"{"a":"#, count: 100_000))
        }
    }

    @Test func `a mismatch names its field`() throws {
        let value = try read(
            #"{"message":"0123456789abcdef0123456789abcdef","state":"sent","stored":1,"expiresAt":null}"#)
        #expect { try value.decoded(as: SendResult.self) } throws: { error in
            (error as? JSONMismatch)?.field == "stored"
        }
        let list = try read(#"{"conversation":"c","with":["a",2]}"#)
        #expect { try list.decoded(as: ConversationCreateParams.self) } throws: { error in
            (error as? JSONMismatch)?.field == "with[1]"
        }
    }

    @Test func `a mismatch with an enumeration names the possible values, not the wrong one`() throws {
        let wrong = try read(#"{"conversation":"c","lifetime":"fortnight"}"#)
        #expect { try wrong.decoded(as: LifetimeProposeParams.self) } throws: { error in
            let mismatch = error as? JSONMismatch
            return mismatch?.field == "lifetime"
                && mismatch?.message == "expected one of ephemeral, 1h, 6h, 1d, 7d, 30d, found another"
        }
        #expect { try read(#"["send","fortnight"]"#).decoded(as: [LifetimeTimer].self) } throws: { error in
            let mismatch = error as? JSONMismatch
            return mismatch?.field == "[1]" && mismatch?.message == "expected one of send, read, found another"
        }
        #expect(try read(#"["send","read"]"#).decoded(as: [LifetimeTimer].self) == [.send, .read])
    }
}
