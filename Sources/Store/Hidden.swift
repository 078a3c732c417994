extension Store {
    /// Identifiers of the hidden records, in no order; what they are, their owner knows.
    package func hiddenIDs(_ id: RowID) throws(StoreError) -> [[UInt8]] {
        let row = try row(id)
        try index(row)
        return row.index.compactMap { id, place in row.record(at: place)?.isHidden == true ? id.bytes : nil }
    }
}
