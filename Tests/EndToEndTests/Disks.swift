import Foundation
import Glibc
import Testing

/// Runs `body` with two running nodes; `ann` lives on a small file system in memory.
func withDisk(_ body: (_ ann: TestNode, _ bob: TestNode, _ disk: String) throws -> Void) throws {
    try withDirectory { directory in
        let disk = "\(directory)/disk"
        mkdir(disk, 0o700)
        try Program.tool("mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "mayfly-test", disk)
        defer { umount2(disk, Int32(MNT_DETACH)) }
        let ann = TestNode(name: "ann", directory: directory, parent: disk)
        let bob = TestNode(name: "bob", directory: directory)
        defer { for node in [ann, bob] { node.crash() } }
        for node in [ann, bob] {
            try node.initialise()
            try node.start()
        }
        try body(ann, bob, disk)
    }
}

func fill(_ path: String) {
    let descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    defer { close(descriptor) }
    for size in [65_536, 4_096, 1] {
        let bytes = [UInt8](repeating: 1, count: size)
        while write(descriptor, bytes, size) == size {}
    }
}
