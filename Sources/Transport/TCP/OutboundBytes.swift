import NIOCore

/// Outgoing bytes of a link: sealed but not written, and written but not accepted by the kernel.
struct OutboundBytes {
    private let limits: TransportLimits
    private var unflushed = ByteBuffer()
    private var inFlight = 0
    private(set) var isWritable = true

    init(limits: TransportLimits) { self.limits = limits }

    var count: Int { unflushed.readableBytes + inFlight }
    var isOverfull: Bool { count > limits.outboundByteCount }
    var stopsReading: Bool { count > limits.outboundReadStop }
    var wantsFlush: Bool { unflushed.readableBytes >= limits.flushByteCount }

    mutating func append(_ bytes: [UInt8]) {
        unflushed.writeBytes(bytes)
        if count > limits.outboundHighWater { isWritable = false }
    }

    mutating func take() -> ByteBuffer? {
        guard unflushed.readableBytes > 0 else { return nil }
        let bytes = unflushed
        unflushed = ByteBuffer()
        inFlight += bytes.readableBytes
        return bytes
    }

    /// - Returns: whether the link became writable.
    mutating func written(_ byteCount: Int) -> Bool {
        inFlight -= byteCount
        guard !isWritable, count <= limits.outboundLowWater else { return false }
        isWritable = true
        return true
    }
}
