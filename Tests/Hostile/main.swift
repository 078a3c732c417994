import Adversary
import Control
import Foundation
import Glibc
import Messaging

// `make hostile`: every attack in turn against a real node, while an honest pair chats; a table at the end.
//
//     hostile --mayfly PATH [--seconds 200] [--only NAME] [--crowd 10000] [--directory DIR]

var mayfly = ".build/release/mayfly"
var seconds = 200.0
var crowd = 10_000
var only: String?
var directory = "/tmp"
var arguments = CommandLine.arguments.dropFirst()
func complain(_ text: String) -> Never {
    FileHandle.standardError.write(Data("\(text)\n".utf8))
    exit(2)
}
while let option = arguments.popFirst() {
    guard let value = arguments.popFirst() else { complain("\(option) needs a value") }
    switch option {
    case "--mayfly": mayfly = value
    case "--seconds": seconds = Double(value) ?? seconds
    case "--crowd": crowd = Int(value) ?? crowd
    case "--only": only = value
    case "--directory": directory = value
    default: complain("unknown option \(option)")
    }
}

var limit = rlimit()
if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 {
    limit.rlim_cur = limit.rlim_max
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}
signal(SIGPIPE, SIG_IGN)

let home = "\(directory)/mf-hostile-\(getpid())"
mkdir(home, 0o700)
var isWhole = true
do {
    let campaign = try Campaign(mayfly: mayfly, directory: home, crowd: crowd)
    let attacks = Attack.allCases.filter { attack in only.map { attack.rawValue.contains($0) } ?? true }
    isWhole = try campaign.run(attacks, seconds: seconds)
} catch {
    try? FileManager.default.removeItem(atPath: home)
    complain("\(error)")
}
try? FileManager.default.removeItem(atPath: home)
exit(isWhole ? 0 : 1)
