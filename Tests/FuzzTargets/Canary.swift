extension FuzzTarget {
    /// A decoder with a planted defect behind four magic bytes: a fuzzer that misses it does not work.
    package static let canary = FuzzTarget(
        "canary", byteCountLimit: 64, seeds: { [Array("MFLY".utf8) + [3, 1, 2, 3]] },
        run: { bytes in
            guard bytes.starts(with: Array("MFLY".utf8)), bytes.count > 5 else { return }
            let count = Int(bytes[4])
            guard count <= bytes.count - 4, count > 0 else { return }
            try expect(4 + count < bytes.count, "reads byte \(4 + count) of \(bytes.count)")
        })

    /// Reads one byte past the end of its allocation, which only a sanitizer detects. Never run it without one.
    package static let memoryCanary = FuzzTarget(
        "memory-canary", byteCountLimit: 64, seeds: { [[0]] },
        run: { bytes in
            let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: 64)
            defer { memory.deallocate() }
            memory.update(repeating: 1, count: 64)
            try expect(memory[64 + bytes.count / 1_000] != memory[bytes.count % 64] &+ 1, "")
        })
}
