import Messaging
import TestSupport

/// The core in mid-operation, with members that hold real keys. An input is a script of changed frames, of frames a
/// hostile member signs with any numbers, of users, clocks and links. Its first byte seeds the generator and selects
/// how long the nodes run afterwards, which takes most of the time.
let coreTargets: [FuzzTarget] = [
    core("core-two", CoreScenario.two), core("core-three", CoreScenario.three),
    core("core-joining", CoreScenario.joining), core("core-contact", CoreScenario.contact),
]

/// How long the nodes run after the script, and after a restart.
typealias Ending = (first: Milliseconds, second: Milliseconds?)

private let endings: [Ending] = [(.minute, 5 * .minute), (2 * .second, .minute), (.minute, nil), shortEnding]
private let shortEnding: Ending = (2 * .second, nil)

private func core(_ name: String, _ scenario: CoreScenario) -> FuzzTarget {
    FuzzTarget(name, byteCountLimit: 1_024, cost: 50, seeds: scenario.seeds) { bytes in
        var (session, input) = try scenario.begin(bytes)
        let head = input.byte()
        let patience = FuzzPatience(bytes)
        session.all.random = .seeded(UInt64(head >> 4))
        switch patience {
        case .long: break
        case .middling: session.all.limit = 240
        case .short:
            session.all.limit = 48
            session.all.manner.checksFrames = false
        }
        try session.act(input) { $0.act(&$1) }
        try session.end(patience == .short ? shortEnding : endings[min(Int(head & 15), endings.count - 1)])
    }
}

extension FuzzSession {
    mutating func act(_ input: FuzzInput, _ act: (inout FuzzSession, inout FuzzInput) throws -> Void) throws {
        var input = input
        for _ in 0..<24 where !input.isAtEnd && !all.isOver {
            try act(&self, &input)
            try all.check()
        }
    }

    mutating func end(_ ending: Ending) throws {
        all.run(for: ending.first)
        if let second = ending.second, !all.isOver {
            all.restart()
            all.run(for: second)
        }
        try all.check()
    }
}

enum CoreScenario: CaseIterable, Sendable {
    case two, three, joining, contact, mailed

    // Never changed: each input makes its own nodes.
    private nonisolated(unsafe) static let bases = allCases.map { scenario in
        Result { try FuzzSession(scenario.world()) }
    }

    private func world() throws -> World {
        switch self {
        case .two: try .joined(2)
        case .three: try .joined(3)
        case .joining: try .halfJoined()
        case .contact: .contacts()
        case .mailed: try .mailing()
        }
    }

    /// Starts each input from the saved records, so that inputs are independent.
    func begin(_ bytes: [UInt8]) throws -> (session: FuzzSession, input: FuzzInput) {
        var session = try Self.bases[Self.allCases.firstIndex(of: self)!].get()
        session.all.restart(sessionGoesOn: true)
        switch self {
        case .two, .three, .mailed: session.all.run(for: 5 * .second)
        case .joining: session.all.dial()
        case .contact: session.all.open(0, to: 1)
        }
        session.all.count = 0
        FuzzTarget.preludeEnded()
        return (session, FuzzInput(bytes))
    }

    /// Every operation once, and some sequences, with every ending.
    var seeds: [[UInt8]] { scripts.enumerated().map { [UInt8($0.offset % endings.count)] + $0.element } }

    private var scripts: [[UInt8]] {
        var seeds = (0..<FuzzSession.frameCount).map { kind in
            FuzzScript().byte(0, kind, kind).number(UInt64(kind)).number(3).number(9).run([65, 66]).bytes
        }
        seeds += (0..<FuzzSession.templateCount).map { FuzzScript().byte(1, 0, $0, 1).short(9).byte(1).bytes }
        seeds += (0..<FuzzSession.commandCount).map { command in
            FuzzScript().byte(2, 0, command, 1, 3).short(5_000).byte(2, 1, command).bytes
        }
        let agreed = FuzzScript().byte(2, 0, 1, 2, 3).short(100).byte(2, 1, 2)
        seeds.append(agreed.byte(3).short(100).byte(2, 0, 0).run([65]).byte(3).short(900).bytes)
        seeds.append(FuzzScript().byte(4, 0, 3).short(60_000).byte(5, 0, 6, 0, 1).bytes)
        return seeds
    }
}
