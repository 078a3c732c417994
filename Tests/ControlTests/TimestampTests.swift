import Control
import Testing

import struct Messaging.Timestamp

@Suite struct TimestampTests {
    @Test(
        arguments: [
            ("1970-01-01T00:00:00Z", 0), ("2000-02-29T12:34:56Z", 951_827_696_000),
            ("2026-11-21T06:53:53.250Z", 1_795_244_033_250), ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        ] as [(String, Int64)]) func `a timestamp and its ISO 8601 text convert into each other`(
            text: String, milliseconds: Int64
        )
    {
        #expect(Timestamp(iso8601: text)?.milliseconds == milliseconds)
        #expect(Timestamp(milliseconds: milliseconds).exactISO8601 == text)
    }

    @Test func `a time with an offset is converted to UTC`() {
        #expect(Timestamp(iso8601: "2026-11-21T08:53:53+02:00") == Timestamp(iso8601: "2026-11-21T06:53:53Z"))
        #expect(Timestamp(iso8601: "2026-11-21T06:53:53.25-01:30") == Timestamp(iso8601: "2026-11-21T08:23:53.250Z"))
    }

    @Test func `a lower-case, spaced or over-precise time and a leap second are accepted`() {
        let time = Timestamp(iso8601: "2026-11-21T06:54:00Z")
        #expect(
            Timestamp(iso8601: "2026-11-21 06:54:00Z") == time && Timestamp(iso8601: "2026-11-21t06:54:00z") == time)
        // A leap second is the first second of the next minute: machine clocks have none.
        #expect(Timestamp(iso8601: "2026-11-21T06:53:60Z") == time)
        #expect(Timestamp(iso8601: "2026-11-21T06:54:00.000999999999999999999999999Z") == time)
    }

    @Test(arguments: [
        "", "2026-11-21", "2026-11-21T06:53:53", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
        "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00Zx",
        "2026-01-01T00:00:00+1:00", "1969-12-31T23:59:59Z", "２026-01-01T00:00:00Z", "2026-01-01T00:00:61Z",
        "2026-01-01_00:00:00Z", "9999-12-31T23:59:60Z", "1970-01-01T00:00:01+23:29", "9999-12-31T23:59:59-00:01",
    ]) func `an invalid time is refused`(text: String) { #expect(Timestamp(iso8601: text) == nil) }

    @Test func `an interval has a unit, or is in seconds`() {
        #expect(Interval(text: "90")?.milliseconds == 90_000)
        #expect(Interval(text: "1.5")?.milliseconds == 1500)
        #expect(Interval(text: "500ms")?.milliseconds == 500)
        #expect(Interval(text: "24h")?.milliseconds == 86_400_000)
        #expect(Interval(text: "7d")?.milliseconds == 604_800_000)
        for text in ["", "h", "-1", "1y", "1 h", "1e3", "∞", "99999999d", "1.2.3"] {
            #expect(Interval(text: text) == nil, "\(text)")
        }
    }
}
