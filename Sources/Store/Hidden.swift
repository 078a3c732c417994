extension Store {
    /// Identifiers of the hidden records, in no order; what they are, their owner knows.
    package func hiddenIDs(_ id: RowID) throws(StoreError) -> [[UInt8]] {
        let row = try row(id)
        try index(row)
        return row.index.compactMap { id, place in
            place.segment.records[place.record].isHidden ? id.bytes : nil
        }
    }

    /// Bytes of an inbox's segments on the disk.
    package func storedByteCount(_ id: RowID) throws(StoreError) -> Int64 {
        let row = try row(id)
        try index(row)
        return row.segments.reduce(0) { $0 + ($1.isDead ? 0 : $1.file.end) }
    }
}
