import Foundation
import Testing

/// Three folders of Transport take time and random bytes from outside, so that their tests replay from a seed.
@Suite("Folders without I/O") struct PureFoldersTests {
    private static let allowed: Set<String> = ["Cryptography", "DequeModule", "HeapModule"]

    @Test(arguments: ["Datagrams", "LAN/Discovery", "PortMapping"]) func importsNoSocketAndNoClock(folder: String)
        throws
    {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let folder = root.appending(path: "Sources/Transport/\(folder)")
        let files = try FileManager.default.subpathsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".swift") }
        #expect(files.count >= 3)
        for file in files {
            let text = try String(contentsOf: folder.appending(path: file), encoding: .utf8)
            let imports = text.matches(of: /(?m)^\s*(?:[@\w]+\s+)*import\s+(\w+)/).map { String($0.1) }
            #expect(Self.allowed.isSuperset(of: imports), "\(file)")
            #expect(!text.contains("ContinuousClock"), "\(file)")
        }
    }
}
