import Glibc

/// The bytes of a simulated file in copy-on-write pages, so that a snapshot of a disk is cheap.
package struct SimulatedBytes: Sendable {
    private static let pageByteCount = 4_096
    private static let zeros = [UInt8](repeating: 0, count: pageByteCount)
    /// Whole pages; zeros after the end.
    private var pages: [[UInt8]] = []
    package private(set) var count = 0

    package init() {}

    package init(_ bytes: [UInt8]) { write(bytes[...], at: 0) }

    package var bytes: [UInt8] { read(at: 0, count: count) }

    package func read(at offset: Int, count wanted: Int) -> [UInt8] {
        let end = min(count, offset + max(0, wanted))
        guard offset >= 0, offset < end else { return [] }
        var result: [UInt8] = []
        result.reserveCapacity(end - offset)
        var position = offset
        while position < end {
            let from = position % Self.pageByteCount
            let length = min(end - position, Self.pageByteCount - from)
            result += pages[position / Self.pageByteCount][from..<(from + length)]
            position += length
        }
        return result
    }

    package mutating func write(_ bytes: ArraySlice<UInt8>, at offset: Int) {
        guard !bytes.isEmpty else { return }
        if offset + bytes.count > count { resize(to: offset + bytes.count) }
        var position = 0
        while position < bytes.count {
            let from = (offset + position) % Self.pageByteCount
            let length = min(bytes.count - position, Self.pageByteCount - from)
            let first = bytes.startIndex + position
            defer { position += length }
            // A page of zeros stays the shared one.
            if isSharedZero((offset + position) / Self.pageByteCount), Self.isZero(bytes[first..<(first + length)]) {
                continue
            }
            pages[(offset + position) / Self.pageByteCount].replaceSubrange(
                from..<(from + length), with: bytes[first..<(first + length)])
        }
    }

    /// One call: in a debug build a closure per byte takes milliseconds.
    private static func isZero(_ bytes: ArraySlice<UInt8>) -> Bool {
        bytes.withUnsafeBytes { bytes in
            zeros.withUnsafeBytes { zeros in
                guard let first = bytes.baseAddress, let zero = zeros.baseAddress else { return true }
                return memcmp(first, zero, min(zeros.count, bytes.count)) == 0
            }
        }
    }

    private func isSharedZero(_ page: Int) -> Bool {
        pages[page].withUnsafeBufferPointer { page in
            Self.zeros.withUnsafeBufferPointer { $0.baseAddress == page.baseAddress }
        }
    }

    package mutating func resize(to newCount: Int) {
        let pageCount = (newCount + Self.pageByteCount - 1) / Self.pageByteCount
        while pages.count < pageCount { pages.append(Self.zeros) }
        if newCount < count {
            pages.removeLast(pages.count - pageCount)
            let from = newCount % Self.pageByteCount
            if from > 0 {
                let zeros = [UInt8](repeating: 0, count: Self.pageByteCount - from)
                pages[pageCount - 1].replaceSubrange(from..., with: zeros)
            }
        }
        count = newCount
    }
}
