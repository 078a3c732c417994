extension Array {
    /// Binary search for the first element for which `isBehind` holds, in an array partitioned by it; `count` for none.
    package func partitioningIndex(_ isBehind: (Element) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = low + (high - low) / 2
            if isBehind(self[middle]) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}
