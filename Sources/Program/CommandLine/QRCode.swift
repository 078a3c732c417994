/// A QR code for a terminal, two modules per character cell.
enum QRCode {
    static func coloured(_ row: String) -> String { "\u{1b}[30;107m\(row)\u{1b}[0m" }

    /// Rows to show in black on white, with the quiet zone of four modules (ISO/IEC 18004); `nil` when `text` does not
    /// fit.
    static func rows(for text: String) -> [String]? {
        guard let matrix = QRMatrix(Array(text.utf8)) else { return nil }
        let modules = 0..<matrix.size
        func isDark(_ row: Int, _ column: Int) -> Bool {
            modules.contains(row) && modules.contains(column) && matrix[column, row]
        }
        return stride(from: -4, to: matrix.size + 4, by: 2).map { row in
            var line = ""
            for column in -4..<matrix.size + 4 {
                switch (isDark(row, column), isDark(row + 1, column)) {
                case (true, true): line += "█"
                case (true, false): line += "▀"
                case (false, true): line += "▄"
                case (false, false): line += " "
                }
            }
            return line
        }
    }
}

/// The modules of a QR code: ISO/IEC 18004, model 2, byte mode, error correction level L, smallest version that fits.
///
/// Coordinates are (x, y) from the top left module.
struct QRMatrix {
    let size: Int
    private let version: Int
    private var dark: [Bool]
    /// Finder, timing, alignment, format and version patterns, which hold no data and no mask.
    private var isFunction: [Bool]

    /// - Returns: `nil` for more than the 2,953 bytes of version 40.
    init?(_ bytes: [UInt8]) {
        guard let version = (1...40).first(where: { Self.byteLimit($0) >= bytes.count }) else { return nil }
        self.version = version
        size = 4 * version + 17
        dark = Array(repeating: false, count: size * size)
        isFunction = dark
        drawFunctionPatterns()
        draw(codewords: QRCodewords.interleaved(bytes, version: version))
        var best: (penalty: Int, matrix: QRMatrix)?
        for mask in 0..<8 {
            var masked = self
            masked.apply(mask)
            let penalty = masked.penalty
            if penalty < best?.penalty ?? .max { best = (penalty, masked) }
        }
        if let best { dark = best.matrix.dark }
    }

    subscript(x: Int, y: Int) -> Bool {
        get { dark[y * size + x] }
        set { dark[y * size + x] = newValue }
    }

    static func byteLimit(_ version: Int) -> Int {
        // Mode and count take 12 bits, 20 from version 10 on.
        QRCodewords.dataCount(version) - (version < 10 ? 2 : 3)
    }

    private mutating func set(_ x: Int, _ y: Int, _ isDark: Bool) {
        self[x, y] = isDark
        isFunction[y * size + x] = true
    }

    private mutating func drawFunctionPatterns() {
        // A finder has its separator around it, and stands in place of an alignment pattern.
        for (x, y) in [(3, 3), (size - 4, 3), (3, size - 4)] { drawSquares(x, y, radius: 4, light: [2, 4]) }
        let places = alignmentPlaces
        for x in places { for y in places where !isFunction[y * size + x] { drawSquares(x, y, radius: 2, light: [1]) } }
        for index in 8..<size - 8 {
            set(6, index, index % 2 == 0)
            set(index, 6, index % 2 == 0)
        }
        drawFormat(mask: 0)
        drawVersion()
    }

    /// - Parameter light: distances of the light squares from the centre.
    private mutating func drawSquares(_ centreX: Int, _ centreY: Int, radius: Int, light: [Int]) {
        for y in max(0, centreY - radius)...min(size - 1, centreY + radius) {
            for x in max(0, centreX - radius)...min(size - 1, centreX + radius) {
                set(x, y, !light.contains(max(abs(x - centreX), abs(y - centreY))))
            }
        }
    }

    /// Centre rows and columns of the alignment patterns: annex E.
    private var alignmentPlaces: [Int] {
        guard version > 1 else { return [] }
        let count = version / 7 + 2
        let step = version == 32 ? 26 : (version * 4 + count * 2 + 1) / (count * 2 - 2) * 2
        return [6] + (0..<count - 1).map { size - 7 - $0 * step }.reversed()
    }

    /// Level and mask with 10 bits of a BCH code, twice: section 7.9.
    private mutating func drawFormat(mask: Int) {
        let data = 0b01 << 3 | mask
        var rest = data
        for _ in 0..<10 { rest = rest << 1 ^ (rest >> 9) * 0x537 }
        let bits = (data << 10 | rest) ^ 0x5412
        func bit(_ index: Int) -> Bool { bits >> index & 1 == 1 }
        for index in 0..<6 { set(8, index, bit(index)) }
        set(8, 7, bit(6))
        set(8, 8, bit(7))
        set(7, 8, bit(8))
        for index in 9..<15 { set(14 - index, 8, bit(index)) }
        for index in 0..<8 { set(size - 1 - index, 8, bit(index)) }
        for index in 8..<15 { set(8, size - 15 + index, bit(index)) }
        set(8, size - 8, true)
    }

    /// The version with 12 bits of a Golay code, twice, from version 7 on: section 7.10.
    private mutating func drawVersion() {
        guard version >= 7 else { return }
        var rest = version
        for _ in 0..<12 { rest = rest << 1 ^ (rest >> 11) * 0x1F25 }
        let bits = version << 12 | rest
        for index in 0..<18 {
            let isDark = bits >> index & 1 == 1
            set(size - 11 + index % 3, index / 3, isDark)
            set(index / 3, size - 11 + index % 3, isDark)
        }
    }

    /// Fills the data modules in bit order: pairs of columns from the right, alternately up and down, without the
    /// timing column.
    private mutating func draw(codewords: [UInt8]) {
        var index = 0
        var goesUp = true
        for right in stride(from: size - 1, through: 1, by: -2).map({ $0 <= 6 ? $0 - 1 : $0 }) {
            for step in 0..<size {
                let y = goesUp ? size - 1 - step : step
                for x in [right, right - 1] where !isFunction[y * size + x] && index / 8 < codewords.count {
                    self[x, y] = codewords[index / 8] >> (7 - index % 8) & 1 == 1
                    index += 1
                }
            }
            goesUp.toggle()
        }
    }

    /// Inverts the data modules of a mask (section 7.8.2) and writes its number.
    private mutating func apply(_ mask: Int) {
        for y in 0..<size {
            for x in 0..<size where !isFunction[y * size + x] && Self.inverts(mask, x, y) { self[x, y].toggle() }
        }
        drawFormat(mask: mask)
    }

    private static func inverts(_ mask: Int, _ x: Int, _ y: Int) -> Bool {
        switch mask {
        case 0: (x + y) % 2 == 0
        case 1: y % 2 == 0
        case 2: x % 3 == 0
        case 3: (x + y) % 3 == 0
        case 4: (x / 3 + y / 2) % 2 == 0
        case 5: x * y % 2 + x * y % 3 == 0
        case 6: (x * y % 2 + x * y % 3) % 2 == 0
        default: ((x + y) % 2 + x * y % 3) % 2 == 0
        }
    }

    /// Mask penalty: section 7.8.3.
    private var penalty: Int {
        var sum = 0
        for line in 0..<size {
            sum += Self.penalty(ofLine: (0..<size).map { self[$0, line] })
            sum += Self.penalty(ofLine: (0..<size).map { self[line, $0] })
        }
        for y in 1..<size {
            for x in 1..<size {
                let one = self[x, y]
                if one == self[x - 1, y], one == self[x, y - 1], one == self[x - 1, y - 1] { sum += 3 }
            }
        }
        let percentage = dark.count { $0 } * 100 / dark.count
        return sum + abs(percentage - 50) / 5 * 10
    }

    /// Penalty for runs of 5 and more, and for finder-like patterns with four light modules beside them.
    private static func penalty(ofLine line: [Bool]) -> Int {
        var sum = 0
        var run = 0
        var window = 0
        for (index, isDark) in line.enumerated() {
            run = index > 0 && line[index - 1] == isDark ? run + 1 : 1
            if run == 5 { sum += 3 } else if run > 5 { sum += 1 }
            window = (window << 1 | (isDark ? 1 : 0)) & 0b111_1111_1111
            if index >= 10, window == 0b1011101_0000 || window == 0b0000_1011101 { sum += 40 }
        }
        return sum
    }
}

/// The codewords of a QR code with error correction, in the order of the symbol.
private enum QRCodewords {
    /// Error correction codewords per block at level L, by version: table 9.
    private static let correctionCounts = [
        7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28, 28, 28, 30, 30, 26, 28, 30, 30,
        30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30,
    ]
    /// Blocks at level L, by version: table 9.
    private static let blockCounts = [
        1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8, 8, 9, 9, 10, 12, 12, 12, 13, 14, 15, 16, 17, 18, 19,
        19, 20, 21, 22, 24, 25,
    ]

    static func dataCount(_ version: Int) -> Int {
        count(version) - correctionCounts[version - 1] * blockCounts[version - 1]
    }

    private static func count(_ version: Int) -> Int {
        var modules = (16 * version + 128) * version + 64
        if version >= 2 {
            let alignments = version / 7 + 2
            modules -= (25 * alignments - 10) * alignments - 55
        }
        if version >= 7 { modules -= 36 }
        return modules / 8
    }

    static func interleaved(_ bytes: [UInt8], version: Int) -> [UInt8] {
        let data = encoded(bytes, version: version)
        let blockCount = blockCounts[version - 1]
        let generator = generator(correctionCounts[version - 1])
        let longCount = data.count % blockCount
        var blocks: [ArraySlice<UInt8>] = []
        var start = 0
        for index in 0..<blockCount {
            let end = start + data.count / blockCount + (index >= blockCount - longCount ? 1 : 0)
            blocks.append(data[start..<end])
            start = end
        }
        let corrections = blocks.map { correction(of: $0, generator) }
        var result: [UInt8] = []
        for index in 0..<(blocks.last?.count ?? 0) {
            for block in blocks where index < block.count { result.append(block[block.startIndex + index]) }
        }
        for index in generator.indices { for correction in corrections { result.append(correction[index]) } }
        return result
    }

    /// Mode, count, content, and padding: section 7.4.
    private static func encoded(_ bytes: [UInt8], version: Int) -> [UInt8] {
        var bits: [Bool] = []
        func append(_ value: Int, _ count: Int) {
            for index in (0..<count).reversed() { bits.append(value >> index & 1 == 1) }
        }
        let count = dataCount(version)
        append(0b0100, 4)
        append(bytes.count, version < 10 ? 8 : 16)
        for byte in bytes { append(Int(byte), 8) }
        append(0, min(4, count * 8 - bits.count))
        append(0, (8 - bits.count % 8) % 8)
        var result = stride(from: 0, to: bits.count, by: 8).map { start in
            bits[start..<start + 8].reduce(0) { $0 << 1 | ($1 ? 1 : 0) as UInt8 }
        }
        let padding: [UInt8] = [0xEC, 0x11]
        for index in 0..<count - result.count { result.append(padding[index % 2]) }
        return result
    }

    private static func multiply(_ one: UInt8, _ other: UInt8) -> UInt8 {
        var product: UInt8 = 0
        for bit in (0..<8).reversed() {
            product = product << 1 ^ (product >> 7) * 0x1D
            product ^= (other >> UInt8(bit) & 1) * one
        }
        return product
    }

    /// The coefficients of (x - 1)(x - 2)(x - 4)…, without the first.
    private static func generator(_ degree: Int) -> [UInt8] {
        var result = [UInt8](repeating: 0, count: degree - 1) + [1]
        var root: UInt8 = 1
        for _ in 0..<degree {
            for index in 0..<degree {
                result[index] = multiply(result[index], root)
                if index + 1 < degree { result[index] ^= result[index + 1] }
            }
            root = multiply(root, 2)
        }
        return result
    }

    private static func correction(of block: ArraySlice<UInt8>, _ generator: [UInt8]) -> [UInt8] {
        var rest = [UInt8](repeating: 0, count: generator.count)
        for byte in block {
            let factor = byte ^ rest.removeFirst()
            rest.append(0)
            for index in rest.indices { rest[index] ^= multiply(generator[index], factor) }
        }
        return rest
    }
}
