import Control
import Glibc
import Messaging

/// The wall clock, for relative times.
func wallClock() -> Timestamp {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return Timestamp(milliseconds: Int64(now.tv_sec) * 1000 + Int64(now.tv_nsec) / 1_000_000)
}

/// At a terminal times are local, otherwise UTC.
let outputIsTerminal = isatty(STDOUT_FILENO) == 1

/// `2026-11-21T06:53:53Z (in 23 h)`, on a terminal `2026-11-21 07:53:53 (in 23 h)` in local time; `-` for no time.
func shown(_ timestamp: Timestamp?, now: Timestamp) -> String {
    guard let timestamp else { return "-" }
    let distance = timestamp.milliseconds - now.milliseconds
    let whole = Timestamp(milliseconds: timestamp.milliseconds / 1000 * 1000)
    let time = outputIsTerminal ? localText(of: whole) : whole.exactISO8601
    let seconds = abs(distance) / 1000
    let length =
        switch seconds {
        case 0..<90: "\(seconds) s"
        case 90..<5400: "\((seconds + 30) / 60) min"
        case 5400..<129_600: "\((seconds + 1800) / 3600) h"
        default: "\((seconds + 43_200) / 86_400) d"
        }
    if seconds == 0 { return "\(time) (now)" }
    return "\(time) (\(distance < 0 ? "\(length) ago" : "in \(length)"))"
}

/// The input format: `6h`, `90m`, `45s`.
func length(_ interval: Interval) -> String {
    let seconds = interval.milliseconds / 1_000
    for (unit, letter) in [(86_400, "d"), (3_600, "h"), (60, "m")] where seconds % Int64(unit) == 0 {
        return "\(seconds / Int64(unit))\(letter)"
    }
    return "\(seconds)s"
}

private func localText(of time: Timestamp) -> String {
    var seconds = time_t(time.milliseconds / 1_000)
    var parts = tm()
    guard localtime_r(&seconds, &parts) != nil else { return time.exactISO8601 }
    var text = [CChar](repeating: 0, count: 64)
    let count = strftime(&text, text.count, "%Y-%m-%d %H:%M:%S", &parts)
    return String(decoding: text[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self)
}

func localTime(of time: Timestamp) -> LocalTime {
    var seconds = time_t(time.milliseconds / 1_000)
    var parts = tm()
    localtime_r(&seconds, &parts)
    return LocalTime(
        year: Int(parts.tm_year) + 1_900, month: Int(parts.tm_mon) + 1, day: Int(parts.tm_mday),
        weekday: Int(parts.tm_wday), hour: Int(parts.tm_hour), minute: Int(parts.tm_min))
}
