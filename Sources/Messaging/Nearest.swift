/// Optimal string alignment: insertions, deletions, substitutions, and swaps of neighbours.
func editDistance<Letter: Equatable>(_ left: [Letter], _ right: [Letter]) -> Int {
    var before: [Int] = []
    var last = Array(0...right.count)
    for (row, letter) in left.enumerated() {
        var line = [row + 1]
        for (column, other) in right.enumerated() {
            var cost = min(last[column + 1], line[column]) + 1
            cost = min(cost, last[column] + (letter == other ? 0 : 1))
            if row > 0, column > 0, letter == right[column - 1], left[row - 1] == other {
                cost = min(cost, before[column - 1] + 1)
            }
            line.append(cost)
        }
        (before, last) = (last, line)
    }
    return last[right.count]
}

extension [String] {
    /// The first name with the smallest edit distance to a mistyped word, at most 2; `nil` for none.
    /// - Parameter folded: makes names that read alike equal.
    package func nearest(to word: String, folded: (String) -> String = { $0 }) -> String? {
        let letters = [Character](folded(word))
        let limit = Swift.min(2, letters.count - 2)
        var best: (name: String, distance: Int)?
        for name in self {
            let other = [Character](folded(name))
            guard abs(other.count - letters.count) <= limit else { continue }
            let distance = editDistance(letters, other)
            if distance <= limit, distance < best?.distance ?? .max { best = (name, distance) }
        }
        return best?.name
    }
}
