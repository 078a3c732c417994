import Testing

@testable import Program

@Suite("QR codes") struct QRMatrixTests {
    /// The symbol of libqrencode 4.1.1.
    @Test func `A known text gives the known symbol`() throws {
        let matrix = try #require(QRMatrix(Array("hello".utf8)))
        let rows = (0..<matrix.size).map { y in (0..<matrix.size).map { matrix[$0, y] ? "#" : "." }.joined() }
        #expect(
            rows == [
                "#######..#.##.#######", "#.....#.##.#..#.....#", "#.###.#.##..#.#.###.#", "#.###.#..#.#..#.###.#",
                "#.###.#.#...#.#.###.#", "#.....#.#..##.#.....#", "#######.#.#.#.#######", "........#####........",
                "##.#..##.##...###.##.", ".#####.###....#....##", "..##.####.#.##...##.#", "...#.#..#..#.....#.##",
                "....#.##.##.#.#.#....", "........####...##.#.#", "#######.###..#.#.###.", "#.....#..#####.##....",
                "#.###.#..#.#..###...#", "#.###.#.#.##...#.####", "#.###.#..##.#...#.#.#", "#.....#.###..##......",
                "#######.#.###..#.#.#.",
            ])
    }

    /// The limits are those of table 7 of ISO/IEC 18004. The checksum is of symbols that were compared with libqrencode
    /// 4.1.1: they are equal, except for the mask of some.
    @Test func `The largest text of each version gives the symbol that was compared with libqrencode's`() throws {
        let limits = [
            17, 32, 53, 78, 106, 134, 154, 192, 230, 271, 321, 367, 425, 458, 520, 586, 644, 718, 792, 858, 929, 1_003,
            1_091, 1_171, 1_273, 1_367, 1_465, 1_528, 1_628, 1_732, 1_840, 1_952, 2_068, 2_188, 2_303, 2_431, 2_563,
            2_699, 2_809, 2_953,
        ]
        // FNV-1a
        var sum: UInt64 = 0xCBF2_9CE4_8422_2325
        for (version, limit) in zip(1..., limits) {
            let text = (0..<limit).map { UInt8(32 + ($0 * 31 + version) % 95) }
            let matrix = try #require(QRMatrix(text))
            #expect(matrix.size == 4 * version + 17)
            for y in 0..<matrix.size {
                for x in 0..<matrix.size { sum = (sum ^ (matrix[x, y] ? 1 : 0)) &* 0x100_0000_01B3 }
            }
        }
        #expect(sum == 0xC454_A63A_4958_C01F)
        #expect(QRMatrix(Array(repeating: 65, count: 2_954)) == nil)
    }
}
