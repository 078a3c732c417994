extension Array {
    /// Binary search: the index of the first element for which `isBehind` holds, of elements for which it holds from some
    /// index on; `count` for none.
    package func partitioningIndex(_ isBehind: (Element) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = low + (high - low) / 2
            if isBehind(self[middle]) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}
