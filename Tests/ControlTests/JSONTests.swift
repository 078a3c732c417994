import Control
import Testing

@testable import Program

@Suite struct JSONTests {
    private func read(_ text: String) throws -> JSONValue { try JSONReader.read(Array(text.utf8)) }

    @Test(arguments: [
        (#"null"#, nil), (#"true"#, nil), (#"-7"#, nil), (#"9223372036854775807"#, nil), (#"1.5"#, nil),
        (#""a\"b\\c\n""#, nil), (#"[]"#, nil), (#"{}"#, nil), (#"[1,[2,[3]],{"a":null}]"#, nil),
        (#"{"a":1,"b":"ü€😀"}"#, nil), (#"{ "b" : 1 , "a" : 2 }"#, #"{"a":2,"b":1}"#),
        (#""A\u00fc\uD83D\uDE00\/\t""#, #""Aü😀/\t""#), (#""\u0001\u001b\u007f""#, nil),
        (#""\u0080a\u009b31m\u009f""#, nil), (#"{"\u0085":1}"#, nil), (#""a\u2028b\u2029""#, nil),
        (#""\u061c\u200e\u200f\u202a\u202e\u2066\u2069""#, nil),
        // Their neighbours are ordinary characters.
        ("\"\u{a0}\u{bf}\u{61b}\u{61d}\u{200d}\u{2010}\u{2027}\u{202f}\u{2065}\u{206a}\"", nil),
    ]) func `JSON text is the same after reading and writing, or in its one form`(text: String, form: String?) throws {
        #expect(try read(text).text == form ?? text)
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

    @Test func `a text truncated at any byte, or not in UTF-8, is refused`() throws {
        let whole = Array(#"{"id":12,"m":"é\u00e9","p":[true,{"x":null}]}"#.utf8)
        for bytes in whole.indices.map({ whole.prefix($0) }) + [[0x22, 0xC3, 0x28, 0x22]] {
            #expect(throws: JSONSyntaxError.self) { try JSONReader.read(bytes) }
        }
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

    @Test(arguments: [
        (
            #"{"conversation":"c","lifetime":"fortnight"}"#, "lifetime",
            "expected one of ephemeral, 1h, 6h, 1d, 7d, 30d, found another"
        ),
        (
            #"{"conversation":"c","lifetime":"1d","timer":"later"}"#, "timer",
            "expected one of send, read, found another"
        ),
    ]) func `a mismatch with an enumeration names the possible values, not the wrong one`(
        text: String, field: String, message: String
    ) throws {
        #expect(throws: JSONMismatch(field, message)) { try read(text).decoded(as: LifetimeProposeParams.self) }
    }
}
