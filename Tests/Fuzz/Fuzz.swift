import CFuzz
import FuzzTargets
import Glibc

// The one file of this product, and not named main: built with `--sanitize=fuzzer` libFuzzer brings the entry, and
// without it this file is a program that does nothing, so that the package always links.
//
//     fuzz --target=NAME [libFuzzer's options] [corpus directories]
//     fuzz --write-seeds=DIRECTORY      a directory for each target
//     fuzz --list                         name, longest input, modules

nonisolated(unsafe) private var target: FuzzTarget?
/// A session compares tens of thousands of numbers, and libFuzzer remembers some thirty: it is told in one input of
/// eight.
nonisolated(unsafe) private var tellsSomeComparisons = false
nonisolated(unsafe) private var inputCount: UInt64 = 0

@_cdecl("LLVMFuzzerInitialize") public func initialize(
    _ count: UnsafeMutablePointer<CInt>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>
) -> CInt {
    var isMerging = false
    for index in 1..<max(1, Int(count.pointee)) {
        guard let pointer = arguments.pointee[index] else { continue }
        let argument = String(cString: pointer)
        if argument == "--list" {
            for target in FuzzTarget.all {
                print(target.name, target.byteCountLimit, target.modules.joined(separator: " "))
            }
            exit(0)
        }
        if argument.hasPrefix("--write-seeds=") { writeSeeds(String(argument.dropFirst(14))) }
        if argument.hasPrefix("--target=") { target = FuzzTarget.named(String(argument.dropFirst(9))) }
        if argument.hasPrefix("-merge") { isMerging = true }
    }
    guard target != nil else {
        print("fuzz: name a target: --target=NAME; --list lists them")
        exit(64)
    }
    tellsSomeComparisons = (target?.cost ?? 0) > 1
    FuzzTarget.preludeEnded = { fuzz_counters_forget() }
    fuzz_counters_begin()
    if isMerging { fuzz_counters_show_all() }
    return 0
}

@_cdecl("LLVMFuzzerTestOneInput") public func runOne(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    inputCount &+= 1
    if tellsSomeComparisons { fuzz_comparisons_tell(inputCount & 7 == 0 ? 1 : 0) }
    fuzz_chance_begin(2)
    do { try target?.run(Array(UnsafeBufferPointer(start: bytes, count: count))) } catch {
        fatalError("\(target?.name ?? ""): \(error)")
    }
    fuzz_counters_show()
    return 0
}

private func writeSeeds(_ directory: String) -> Never {
    mkdir(directory, 0o755)
    do {
        for target in FuzzTarget.all {
            mkdir("\(directory)/\(target.name)", 0o755)
            for (index, seed) in try target.seeds().enumerated() {
                let path = "\(directory)/\(target.name)/seed-\(index)"
                let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
                guard file >= 0, write(file, seed, seed.count) == seed.count, close(file) == 0 else {
                    print("fuzz: cannot write \(path)")
                    exit(1)
                }
            }
        }
    } catch {
        print("fuzz: \(error)")
        exit(1)
    }
    exit(0)
}
