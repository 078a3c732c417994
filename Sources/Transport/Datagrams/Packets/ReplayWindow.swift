/// Replay protection for the last 2,048 packet numbers (RFC 6479): a ring of bits with one word more than the window.
/// Words are cleared as the window moves, so no bit is shifted.
struct ReplayWindow: Hashable, Sendable {
    /// Numbers behind the largest that can still be checked.
    static let size: UInt64 = 2_048
    private static let words = 33

    private var bits = [UInt64](repeating: 0, count: words)
    /// One more than the largest marked number; 0 before the first.
    private(set) var next: UInt64 = 0

    /// Whether the number is new and not too old to check.
    func isFresh(_ number: UInt64) -> Bool {
        if number >= next { return true }
        guard next - 1 - number < Self.size else { return false }
        return bits[Self.word(number)] & Self.bit(number) == 0
    }

    /// - Precondition: ``isFresh(_:)``, and the packet is authentic.
    mutating func mark(_ number: UInt64) {
        if number >= next {
            let oldWord = next == 0 ? 0 : (next - 1) / 64
            let newWord = number / 64
            if newWord - oldWord >= UInt64(Self.words) {
                for index in bits.indices { bits[index] = 0 }
            } else {
                var word = oldWord
                while word < newWord {
                    word += 1
                    bits[Int(word % UInt64(Self.words))] = 0
                }
            }
            next = number + 1
        }
        bits[Self.word(number)] |= Self.bit(number)
    }

    private static func word(_ number: UInt64) -> Int { Int(number / 64 % UInt64(words)) }
    private static func bit(_ number: UInt64) -> UInt64 { 1 << (number % 64) }
}
