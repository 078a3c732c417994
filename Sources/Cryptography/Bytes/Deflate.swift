import CZlib

package enum DeflateError: Error, Equatable {
    /// Not a complete raw DEFLATE stream, or bytes follow its end.
    case malformed
    /// More output than the limit or the ratio allows.
    case tooLarge
}

/// Raw DEFLATE (RFC 1951) with a bounded output size, against decompression bombs.
package enum Deflate {
    /// - Parameter level: 1, fast, to 9, small.
    package static func compress(_ bytes: [UInt8], level: Int32 = 9) -> [UInt8] {
        var stream = z_stream()
        let (window, memory) = sizes(for: bytes.count)
        let started = deflateInit2_(
            &stream, level, Z_DEFLATED, -window, memory, Z_DEFAULT_STRATEGY, ZLIB_VERSION,
            Int32(MemoryLayout<z_stream>.size))
        precondition(started == Z_OK, "zlib could not be initialised")
        defer { deflateEnd(&stream) }
        let capacity = Int(deflateBound(&stream, UInt(bytes.count)))
        let (output, result) = run(deflate, &stream, bytes, capacity)
        precondition(result == Z_STREAM_END, "the bound of deflateBound holds")
        return output
    }

    private static func run(
        _ work: (UnsafeMutablePointer<z_stream>, Int32) -> Int32, _ stream: inout z_stream, _ input: [UInt8],
        _ capacity: Int
    ) -> (output: [UInt8], result: Int32) {
        var (input, result) = (input, Z_OK)
        let output = [UInt8](unsafeUninitializedCapacity: capacity) { output, count in
            input.withUnsafeMutableBufferPointer { input in
                stream.next_in = input.baseAddress
                stream.avail_in = UInt32(input.count)
                stream.next_out = output.baseAddress
                stream.avail_out = UInt32(capacity)
                result = work(&stream, Z_FINISH)
            }
            count = capacity - Int(stream.avail_out)
        }
        return (output, result)
    }

    /// The smallest window for the input, since clearing zlib's largest state of 256 KiB costs more than compressing a
    /// short text. The output is nearly the same.
    /// - Returns: the logarithm of the window's bytes, 10 to 15, and zlib's `memLevel`.
    private static func sizes(for byteCount: Int) -> (window: Int32, memory: Int32) {
        // zlib's usable window is 262 bytes smaller, for its look-ahead.
        let bits = Int32(Int.bitWidth - min(byteCount, 1 << 15).advanced(by: 261).leadingZeroBitCount)
        let window = min(max(bits, 10), 15)
        return (window, min(window - 5, 9))
    }

    /// - Parameters:
    ///   - limit: most bytes of output.
    ///   - ratio: most bytes of output per byte of input.
    package static func decompress(_ bytes: [UInt8], limit: Int, ratio: Int) throws(DeflateError) -> [UInt8] {
        let (product, overflows) = bytes.count.multipliedReportingOverflow(by: ratio)
        let capacity = overflows ? limit : min(limit, product)
        guard capacity > 0 else { throw .malformed }
        var stream = z_stream()
        let started = inflateInit2_(&stream, -15, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size))
        precondition(started == Z_OK, "zlib could not be initialised")
        defer { inflateEnd(&stream) }
        let (output, result) = run(inflate, &stream, bytes, capacity)
        guard result == Z_STREAM_END else {
            throw result == Z_BUF_ERROR && stream.avail_out == 0 ? .tooLarge : .malformed
        }
        guard stream.avail_in == 0 else { throw .malformed }
        return output
    }
}
