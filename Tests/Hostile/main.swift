import Adversary
import Foundation
import Glibc

// `make hostile`: every attack in turn against a real node while an honest pair chats, and a table at the end.
//
//     hostile --mayfly PATH [--seconds 200] [--only NAME] [--crowd 10000] [--directory DIR] [--units N]
//
// With --units an attack ends after that number, and the course of memory is shown. Attacks on LAN discovery need
// --neighbour NAMESPACE,DEVICE,ADDRESS: see with-neighbour.sh.

var mayfly = ".build/release/mayfly"
var seconds = 200.0
var crowd = 10_000
var only: String?
var units: Int?
var neighbourhood: Neighbourhood?
var directory = "/tmp"
var arguments = CommandLine.arguments.dropFirst()
/// - Parameter code: By default `mayfly`'s code for a usage error.
func complain(_ text: String, code: Int32 = 64) -> Never {
    FileHandle.standardError.write(Data("\(text)\n".utf8))
    exit(code)
}
var limit = rlimit()
if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 {
    limit.rlim_cur = limit.rlim_max
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}
signal(SIGPIPE, SIG_IGN)

while let option = arguments.popFirst() {
    guard let value = arguments.popFirst() else { complain("\(option) needs a value") }
    switch option {
    case "--mayfly": mayfly = value
    case "--seconds": seconds = Double(value) ?? seconds
    case "--crowd": crowd = Int(value) ?? crowd
    case "--only": only = value
    case "--units": units = Int(value)
    case "--directory": directory = value
    case "--neighbour":
        let parts = value.split(separator: ",").map(String.init)
        guard parts.count == 3, let place = try? Neighbourhood(neighbour: parts[0], device: parts[1], first: parts[2])
        else { complain("\(value) is no neighbour") }
        neighbourhood = place
    default: complain("unknown option \(option)")
    }
}

let named = Attack.allCases.filter { attack in only.map { attack.description.contains($0) } ?? true }
let attacks = named.filter { $0.ground != .network || neighbourhood != nil }
// A campaign without an attack would pass without a check.
if named.isEmpty {
    let names = Attack.allCases.map { "\n  \($0)" }.joined()
    complain("--only: no attack has `\(only ?? "")` in its name; there are:\(names)")
}
if attacks.isEmpty { complain("--only: what `\(only ?? "")` names is made by a neighbour: see with-neighbour.sh") }

let home = "\(directory)/mf-hostile-\(getpid())"
mkdir(home, 0o700)
var isWhole = true
do {
    let campaign = try Campaign(
        mayfly: mayfly, directory: home, crowd: crowd, units: units, neighbourhood: neighbourhood)
    if attacks.count < named.count {
        print("not made, for want of a neighbour: \(named.count - attacks.count) attacks")
    }
    isWhole = try campaign.run(attacks, seconds: seconds)
} catch {
    try? FileManager.default.removeItem(atPath: home)
    complain("\(error)", code: 2)
}
try? FileManager.default.removeItem(atPath: home)
exit(isWhole ? 0 : 1)
