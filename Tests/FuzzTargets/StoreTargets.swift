#if DEBUG || FUZZING
    import Cryptography
    @testable import Store

    /// The store's formats. An attacker with the disk has no keys; sealed input is made here with keys, so that the
    /// readers behind the seals are tested, too.
    let storeTargets: [FuzzTarget] = [
        FuzzTarget("sidecar", byteCountLimit: 128, seeds: [StoreForms.sidecar]) { bytes in
            let body = StoreForms.padded(bytes, to: 96)
            let whole = body + BLAKE2b.authenticate(key: StoreForms.key, Array("mayfly sidecar".utf8), body)
            let segment = Array(whole[8..<24])
            let tag = Array(whole[48..<64])
            let sidecar = ExpirySidecar(whole, segmentID: segment, inboxTag: tag, key: StoreForms.key)
            try expect(sidecar?.encoded ?? whole == whole, "a sidecar changes")
            let other = ExpirySidecar(bytes, segmentID: segment, inboxTag: tag, key: StoreForms.otherKey)
            try expect(other == nil, "a sidecar of another row is taken")
        },
        FuzzTarget("column-header", byteCountLimit: 64, seeds: StoreForms.columnHeaders) { bytes in
            let body = StoreForms.padded(bytes, to: 48)
            let page = body + BLAKE2b.hash(Array("mayfly column header".utf8), body, byteCount: 16)
            _ = ColumnHeader(page: bytes)
            guard let header = ColumnHeader(page: page) else { return }
            try expect(header.encoded == page, "\(header) comes back otherwise")
        },
        FuzzTarget("tombstone-page", byteCountLimit: 4_096, seeds: StoreForms.tombstones) { bytes in
            let keys = StoreForms.keys
            _ = TombstonePage.open(bytes, index: 0, keys: keys)
            let header = StoreForms.tombstoneHeader(bytes)
            let size = SlotFile.pageByteCount - header.count - XChaChaPoly.overheadByteCount
            let sealed = XChaChaPoly.seal(
                StoreForms.padded(bytes.dropFirst(8), to: size), key: keys.tombstones,
                nonce: [UInt8](repeating: 1, count: XChaChaPoly.nonceByteCount),
                authenticating: KeyPage.associatedData(file: SlotFile.tombstonesName, index: 0, header: header))
            let page = header + sealed
            guard let tombstone = TombstonePage.open(page, index: 0, keys: keys) else { return }
            try expect(tombstone.payload.count <= TombstonePage.maximumPayload, "\(tombstone.payload.count) bytes")
            let again = TombstonePage.open(tombstone.seal(index: 0, keys: keys), index: 0, keys: keys)
            try expect(again?.payload == tombstone.payload && again?.id == tombstone.id, "a tombstone changes")
        },
        FuzzTarget("record", byteCountLimit: 256, seeds: StoreForms.records) { bytes in
            let span = RecordFile.Span(offset: 144, length: bytes.count + XChaChaPoly.overheadByteCount)
            guard let record = MessageRecord(bytes, number: 0, span: span) else { return }
            let again =
                MessageRecord.header(
                    id: record.id, expiresAt: record.expiresAt, order: record.order, version: record.version,
                    kind: record.kind, bounds: MessageRecord.bounds(bytes) ?? MessageRecord.Bounds())
                + Array(bytes.dropFirst(MessageRecord.headerByteCount))
            try expect(again == bytes, "a record changes")
            try StoreForms.insert(record)
        },
        FuzzTarget("record-file", byteCountLimit: 1_024) {
            let two = FuzzScript().byte(0).run([1, 2]).byte(0).run([3])
            return [
                two.bytes, two.byte(3, 40, 0).run([4]).bytes, two.byte(2).run([1, 2, 3, 4]).bytes,
                two.byte(1).number(5).byte(60).bytes, FuzzScript().byte(4).short(7).byte(0).run([9]).bytes,
            ]
        } run: {
            try StoreForms.checkRecordFile($0)
        }, FuzzTarget("store-open", byteCountLimit: 512, cost: 50, seeds: { FuzzHome.seeds }, run: FuzzHome.check),
    ]

    enum StoreForms {
        static let key = SecretBytes(copying: [UInt8](repeating: 4, count: 32))
        static let otherKey = SecretBytes(copying: [UInt8](repeating: 5, count: 32))
        static let keys = GridKeys(root: SecretBytes(copying: [UInt8](repeating: 6, count: 32)))
        static let place = FilePlace(kind: .segment, directory: Bytes16(1, 2), file: Bytes16(3, 4))
        static let moment: Int64 = 1_800_000_000_000 / 7_200_000 * 7_200_000
        private static let tag = [UInt8](repeating: 2, count: 16)

        static func padded(_ bytes: some Sequence<UInt8>, to count: Int) -> [UInt8] {
            Array((Array(bytes) + [UInt8](repeating: 0, count: count)).prefix(count))
        }

        private static func column() -> Column {
            Column(
                slot: 0, header: ColumnHeader(tier: .oneHour, expiresAt: moment + 3_600_000),
                secret: SharedSecret(SecretBytes(copying: [UInt8](repeating: 7, count: 32))))
        }

        static var sidecar: [UInt8] { Array(sidecarForm().encoded.prefix(96)) }

        private static func sidecarForm() -> ExpirySidecar {
            let column = column()
            return ExpirySidecar(
                segmentID: [UInt8](repeating: 3, count: 16), header: column.header, columnTag: column.tag,
                inboxTag: tag, key: key)
        }

        static var columnHeaders: [[UInt8]] {
            [
                ColumnHeader(tier: .oneHour, expiresAt: moment), ColumnHeader(tier: .thirtyDays, expiresAt: moment),
                ColumnHeader(tier: .fuse, expiresAt: moment, rowSlot: 3, rowFingerprint: tag),
            ].map { Array($0.encoded.prefix(48)) }
        }

        static func tombstoneHeader(_ bytes: [UInt8]) -> [UInt8] {
            let clear = Array("MFTOMB1\0".utf8) + padded(bytes, to: 8)
            return clear + BLAKE2b.hash(Array("mayfly tombstone".utf8), clear, byteCount: 16)
        }

        static var tombstones: [[UInt8]] {
            [0, 5, TombstonePage.maximumPayload].map { count in
                let head = moment.littleEndianBytes + tag + UInt32(1).littleEndianBytes
                return head + UInt16(count).littleEndianBytes + [1, 2, 3]
            }
        }

        static var records: [[UInt8]] {
            [false, true].compactMap { isHidden in
                Bytes16(tag).map {
                    MessageRecord.header(
                        id: $0, expiresAt: moment + 1_000, order: 7, version: 3, kind: isHidden ? .hidden : .listed,
                        bounds: MessageRecord.Bounds()) + [1, 2, 3]
                }
            }
        }

        /// Inserts a record beside two others in a row's segment, and lets it expire.
        static func insert(_ record: MessageRecord) throws {
            let column = column()
            let row = Row(slot: 0, secret: SharedSecret(SecretBytes(copying: [UInt8](repeating: 8, count: 32))))
            let file = RecordFile(number: 0, place: place, associatedData: [1], key: column.secret)
            let segment = Segment(file: file, sidecar: sidecarForm(), column: column, row: row)
            row.segments[0] = segment
            for _ in 0..<2 {
                segment.records.append(record)
                let position = segment.records.indices.upperBound - 1
                row.insert(segment, position)
                segment.noteExpiry(of: position)
            }
            segment.settleEarliest()
            row.sortTimeline()
            for _ in 0..<4 where segment.takeDue(moment + 3_600_000) != nil {}
            row.removeFromIndex(record.id)
            try expect(row.visibleCount == 0, "\(row.visibleCount) of no messages are visible")
        }

        /// A script of a file's contents: 0 a record, 1 a frame with any number and garbage, 2 garbage, 3 zeros over
        /// the record before, 4 the file ends early.
        @Sendable static func checkRecordFile(_ bytes: [UInt8]) throws {
            func file() -> RecordFile {
                let key = SharedSecret(SecretBytes(copying: [UInt8](repeating: 4, count: 32)))
                return RecordFile(number: 0, place: place, associatedData: [1, 2], key: key, header: [])
            }
            let writer = file()
            var nonces = NoncePool()
            func unsubmitted(_ file: RecordFile) -> [UInt8] {
                let body = RecordBuffer()
                file.takeUnsubmitted(into: body)
                return Array(body.bytes)
            }
            var content: [UInt8] = []
            var written: Set<[UInt8]> = []
            var last = 0..<0
            var input = FuzzInput(bytes)
            for _ in 0..<32 where !input.isAtEnd {
                switch input.index(below: 5) {
                case 0:
                    let plain = input.run()
                    let span = writer.append(plain, nonces: &nonces)
                    let start = content.count + RecordFrames.frameByteCount
                    content += unsubmitted(writer)
                    last = start..<(start + span.length)
                    written.insert(plain)
                case 1:
                    let number = UInt32(truncatingIfNeeded: input.number())
                    let length = UInt32(input.byte())
                    content += frame(length, number, associatedData: [1, 2])
                    content += [UInt8](repeating: 0xaa, count: Int(length))
                case 2: content += input.run()
                case 3: for index in last.prefix(Int(input.byte())) where index < content.count { content[index] = 0 }
                default: content.removeLast(min(content.count, Int(input.short())))
                }
            }
            let reader = file()
            var numbers: [UInt32] = []
            let loaded = reader.load(content, from: 0) { number, _, found in
                numbers.append(number)
                if case .opened(let plain) = found, !written.contains(plain) { numbers.append(0) }
            }
            try expect(zip(numbers, numbers.dropFirst()).allSatisfy { $0 < $1 }, "records come out of order or forged")
            // The store appends to sound and whole files, and must read the record again.
            guard loaded.isSound, loaded.isWhole else { return }
            _ = reader.append([42], nonces: &nonces)
            content += unsubmitted(reader)
            var isFound = false
            _ = file().load(content, from: 0) { _, _, found in
                if case .opened(let plain) = found, plain == [42] { isFound = true }
            }
            try expect(isFound, "what was appended to a file that was whole is not found")
        }

        /// A frame that a reader of the disk can make without keys.
        static func frame(_ length: UInt32, _ number: UInt32, associatedData: [UInt8]) -> [UInt8] {
            let head = length.littleEndianBytes + number.littleEndianBytes
            let tag = BLAKE2b.hash(Array("mayfly file".utf8), associatedData, byteCount: 16)
            let check = tag.withUnsafeBytes { tag in head.withUnsafeBytes { SipHash.hash(key: tag, $0) } }
            return head + check.littleEndianBytes
        }
    }

    extension MessageRecord {
        /// The plaintext before the payload.
        static func header(id: Bytes16, expiresAt: Int64, order: UInt64, version: UInt32, kind: Kind, bounds: Bounds)
            -> [UInt8]
        {
            var header = [UInt8](repeating: 0, count: headerByteCount)
            header.withUnsafeMutableBytes {
                writeHeader(
                    id: id, expiresAt: expiresAt, order: order, version: version, kind: kind, bounds: bounds, to: $0)
            }
            return header
        }
    }
#else
    /// Needs internal declarations.
    let storeTargets: [FuzzTarget] = []
#endif
