extension FuzzTarget {
    /// A decoder with a mistake, behind four bytes that it wants to see first: whoever looks for mistakes must find this
    /// one, or does not look.
    package static let canary = FuzzTarget(
        "canary",
        byteCountLimit: 64,
        seeds: { [Array("MFLY".utf8) + [3, 1, 2, 3]] },
        run: { bytes in
            guard bytes.starts(with: Array("MFLY".utf8)), bytes.count > 5 else { return }
            let count = Int(bytes[4])
            // The bound is one too far.
            guard count <= bytes.count - 4, count > 0 else { return }
            try expect(4 + count < bytes.count, "reads byte \(4 + count) of \(bytes.count)")
        }
    )
}
