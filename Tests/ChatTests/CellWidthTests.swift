import Messaging
import Testing

@testable import Program

@Suite struct CellWidthTests {
    @Test(arguments: [
        ("a", 1), ("é", 1), ("e\u{301}", 1), ("漢", 2), ("ｗ", 2), ("👍", 2), ("👍🏽", 2), ("❤️", 2), ("🇩🇪", 2), ("👩‍👩‍👧‍👦", 2),
        ("한", 2), ("ש", 1), ("שָׁ", 1), ("\u{200B}", 0), ("✓", 1), ("●", 1), ("─", 1), ("…", 1), ("", 0),
    ]) func `a character takes as many columns as in terminals`(text: String, width: Int) {
        #expect(CellWidth.of(text) == width)
    }

    @Test func `hostile text loses its stacks of accents`() {
        let held = String(repeating: "\u{202E}\u{301}\u{301}", count: 100)
        #expect(safe("e" + held).unicodeScalars.count == 8)
        #expect(safe("e" + String(repeating: "\u{301}", count: 500)).unicodeScalars.count == 8)
        #expect(ShownText.lines("one\r\ntwo\nthree\u{2028}four\u{85}five") == ["one", "two", "three", "four", "five"])
    }

    @Test(arguments: [
        (1, "1 byte"), (1_023, "1023 bytes"), (1_024, "1 KiB"), (200_000, "195.3 KiB"), (8 << 20, "8 MiB"),
        (50_000_000, "47.7 MiB"), (3 << 40, "3072 GiB"),
    ]) func `a size has one decimal, unless it is 0`(count: Int64, words: String) { #expect(sizeText(count) == words) }

    @Test func `lines break at blanks, or anywhere if there are none`() {
        #expect(Wrapping.wrap("rotate the key now", width: 10) == ["rotate the", "key now"])
        #expect(Wrapping.wrap("rotate the key", width: 8) == ["rotate", "the key"])
        #expect(Wrapping.wrap("0123456789", width: 4) == ["0123", "4567", "89"])
        #expect(Wrapping.wrap("漢字漢字", width: 5) == ["漢字", "漢字"])
        #expect(Wrapping.wrap("", width: 5) == [""])
        #expect(Wrapping.wrap("漢", width: 1) == [""])
    }

    @Test func `no wrapped row is wider than its limit`() {
        var generator = SplitMix64(state: 7)
        let letters: [Character] = ["a", "b", " ", " ", "漢", "👍", "é", "ש", "\u{200B}", "x"]
        for _ in 0..<2_000 {
            let text = String((0..<Int(generator.next() % 60)).map { _ in letters[Int(generator.next() % 10)] })
            let width = 1 + Int(generator.next() % 20)
            let rows = Wrapping.wrap(text, width: width)
            #expect(rows.allSatisfy { CellWidth.of($0) <= width })
            if width > 1 { #expect(rows.joined().filter { $0 != " " } == text.filter { $0 != " " }) }
            #expect(CellWidth.of(Wrapping.fit(text, width: width)) == width)
        }
    }
}

/// A generator determined by its seed (Steele, Lea, Flood 2014).
struct SplitMix64 {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return value ^ (value >> 31)
    }
}
