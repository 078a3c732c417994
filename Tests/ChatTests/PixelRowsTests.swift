import Control
import Testing

@testable import Program

/// Output of chafa, and hostile output in its place.
@Suite struct PixelRowsTests {
    private func rows(_ text: String, columns: Int = 20, rows: Int = 5) -> [Row] {
        PixelRows.rows(of: Array(text.utf8), size: Picture.Size(columns: columns, rows: rows))
    }

    @Test func `colour sequences become tones, and drawn characters stay`() {
        let drawn = rows(
            "\u{1B}[0m\u{1B}[7m\u{1B}[38;5;196m \u{1B}[0m\u{1B}[38;5;1;48;5;196m  \u{1B}[0m▉\n\u{1B}[31;104mx")
        #expect(drawn.count == 2)
        #expect(
            drawn[0].spans == [
                Span(" ", .pixels(fore: 196, back: nil, isReversed: true)),
                Span("  ", .pixels(fore: 1, back: 196, isReversed: false)),
                Span("▉", .pixels(fore: nil, back: nil, isReversed: false)),
            ])
        #expect(drawn[1].spans == [Span("x", .pixels(fore: 1, back: 12, isReversed: false))])
    }

    @Test(arguments: [
        "\u{1B}[2Jx", "\u{1B}[10;10Hx", "\u{1B}[?1049hx", "\u{1B}]0;title\u{7}x", "\u{1B}cx", "\u{1B}x", "x\u{1B}",
        "x\u{1B}[", "x\u{1B}[38;5", "\u{1B}[38;5;999mx", "\u{1B}[99999999999999999999mx", "\u{1B}[38;2;1;2;3mx",
        "\u{9B}31mx", "\rx", "x\u{8}", "\u{1B}[\u{1B}[31mx", "\u{202E}x",
    ]) func `no other sequence reaches the terminal`(text: String) {
        let drawn = rows(text)
        let shown = drawn.flatMap(\.spans).map(\.text).joined()
        #expect(shown.contains("x"))
        #expect(
            shown.unicodeScalars.allSatisfy {
                $0.value >= 0x20 && !(0x7F..<0xA0).contains($0.value) && $0.value != 0x202E
            })
    }

    @Test func `surplus rows and columns of an image are cut off`() {
        let drawn = rows(String(repeating: "\u{1B}[31m" + String(repeating: "█", count: 50) + "\n", count: 50))
        #expect(drawn.count == 5 && drawn.allSatisfy { $0.text(width: 20).count == 20 })
    }

    @Test func `a key requests an image, which is shown until the next key`() {
        var desk = ChatDesk()
        func image(_ type: String, _ state: String) -> Control.JSONValue {
            ChatDesk.message(
                1, from: "bob", "",
                more: [
                    "file": [
                        "name": "map.png", "mediaType": .string(type), "byteCount": 100, "state": .string(state),
                        "percent": 50,
                    ]
                ])
        }
        for (type, state, words) in [
            ("application/pdf", "complete", "there is no image"), ("image/png", "receiving", "not here yet"),
        ] {
            desk = ChatDesk()
            desk.open([image(type, state)])
            desk.effects = []
            desk.press(.selectUp, .alt("v"))
            #expect(desk.effects.isEmpty && desk.text.contains(words))
        }
        desk = ChatDesk()
        desk.open([image("image/png", "complete")])
        desk.effects = []
        desk.press(.selectUp, .alt("v"))
        guard case .preview(ChatDesk.room, _, "map.png", let size)? = desk.effects.first else {
            Issue.record("nothing is shown")
            return
        }
        #expect(size.columns == 80)
        desk.handle(
            .image(room: ChatDesk.room, message: ChatDesk.id(1), title: "map.png", rows: rows("\u{1B}[31m██ a map")))
        #expect(desk.text.contains("map.png") && desk.text.contains("██ a map"))
        desk.press(.escape)
        #expect(!desk.text.contains("a map"))
        // A late picture is not shown over another screen, nor after its message.
        func late(_ change: (inout ChatDesk) -> Void) -> String {
            var desk = desk
            change(&desk)
            desk.handle(.image(room: ChatDesk.room, message: ChatDesk.id(1), title: "", rows: rows("a map")))
            return desk.text
        }
        #expect(late { _ in }.contains("a map"))
        #expect(!late { $0.event("exploded") }.contains("a map"))
        #expect(!late { $0.event("locked") }.contains("a map"))
        #expect(!late { $0.press(.alt("0")) }.contains("a map"))
        #expect(!late { $0.press(.escape, .character("x")) }.contains("a map"))
    }
}
