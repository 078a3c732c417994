/// RFC 3339 in UTC: `2026-11-21T06:37:11Z`.
extension Timestamp {
    /// To the second, as in the JSON of the seeds.
    package var iso8601: String { iso8601(withMilliseconds: false) }

    /// With three decimals when the milliseconds are not zero.
    package var exactISO8601: String { iso8601(withMilliseconds: milliseconds % .second != 0) }

    /// Writes into one allocation, since most command answers contain a time.
    private func iso8601(withMilliseconds: Bool) -> String {
        let seconds = milliseconds / .second
        let (year, month, day) = Self.civil(fromDays: seconds / 86_400)
        let time = seconds % 86_400
        // The year of any number of milliseconds has at most nine digits and a sign.
        return String(unsafeUninitializedCapacity: 40) { buffer in
            var count = 0
            func put(_ character: Unicode.Scalar) {
                buffer[count] = UInt8(ascii: character)
                count += 1
            }
            /// - Parameter width: minimum number of digits.
            func put(_ value: Int64, _ width: Int, before next: Unicode.Scalar) {
                if value < 0 { put("-") }
                var rest = value.magnitude
                var digits = 1
                while rest >= 10 {
                    rest /= 10
                    digits += 1
                }
                digits = max(width, digits)
                rest = value.magnitude
                for index in stride(from: count + digits - 1, through: count, by: -1) {
                    buffer[index] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
                    rest /= 10
                }
                count += digits
                put(next)
            }
            put(year, 4, before: "-")
            put(month, 2, before: "-")
            put(day, 2, before: "T")
            put(time / 3_600, 2, before: ":")
            put(time / 60 % 60, 2, before: ":")
            put(time % 60, 2, before: withMilliseconds ? "." : "Z")
            if withMilliseconds { put(milliseconds % .second, 3, before: "Z") }
            return count
        }
    }

    /// `nil` unless `text` is a date and time with an offset, `Z` or `±HH:MM`, in the years 1970 to 9999. Fractions of
    /// a second are cut to milliseconds.
    package init?(iso8601 text: some StringProtocol) {
        var rest = Array(text.utf8)[...]
        func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
        func takeNumber(_ count: Int) -> Int64? {
            let digits = rest.prefix(count)
            guard digits.count == count, digits.allSatisfy(isDigit) else { return nil }
            rest.removeFirst(count)
            return digits.reduce(0) { $0 * 10 + Int64($1 - 0x30) }
        }
        /// - Returns: whether the next character was one of these.
        func take(_ characters: String) -> Bool {
            guard let first = rest.first, characters.utf8.contains(first) else { return false }
            rest.removeFirst()
            return true
        }
        guard let year = takeNumber(4), take("-"), let month = takeNumber(2), take("-"), let day = takeNumber(2),
            take("Tt "), let hour = takeNumber(2), take(":"), let minute = takeNumber(2), take(":"),
            let second = takeNumber(2), (1970...9999).contains(year), hour < 24, minute < 60, second <= 60
        else { return nil }
        let days = Self.days(fromCivil: year, month, day)
        // Only a date of the calendar comes back.
        guard Self.civil(fromDays: days) == (year, month, day) else { return nil }
        var fraction: Int64 = 0
        if take(".") {
            let digits = rest.prefix(while: isDigit)
            guard !digits.isEmpty else { return nil }
            rest.removeFirst(digits.count)
            fraction = (digits + Array("00".utf8)).prefix(3).reduce(0) { $0 * 10 + Int64($1 - 0x30) }
        }
        var offset: Int64 = 0
        if !take("Zz") {
            let isAhead = take("+")
            guard isAhead || take("-"), let hours = takeNumber(2), take(":"), let minutes = takeNumber(2), hours < 24,
                minutes < 60
            else { return nil }
            offset = (hours * 60 + minutes) * (isAhead ? 60 : -60)
        }
        guard rest.isEmpty else { return nil }
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset
        // An offset, or a leap second, may leave the range.
        guard (0..<253_402_300_800).contains(seconds) else { return nil }
        self.init(milliseconds: seconds * .second + fraction)
    }

    // Days since 1970-01-01 and back, in eras of 400 years that begin on the first of March.
    private static func days(fromCivil year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
        let shifted = month <= 2 ? year - 1 : year
        let era = shifted / 400
        let yearOfEra = shifted - era * 400
        let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
        return era * 146_097 + dayOfEra - 719_468
    }

    private static func civil(fromDays days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let shifted = days + 719_468
        let era = shifted / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
    }
}
