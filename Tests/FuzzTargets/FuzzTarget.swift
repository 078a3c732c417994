/// A failed check of a target, besides traps, hangs and memory use.
package struct FuzzFailure: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}

/// A decoder or machine with input from outside. ``run`` must return for any bytes; the target catches its own
/// refusals.
package struct FuzzTarget: Sendable {
    /// Name of the corpus directory, and of `make fuzz TARGET=…`.
    package let name: String
    /// Longest useful input in bytes.
    package let byteCountLimit: Int
    /// Approximate cost of an input relative to a small decoder.
    package let cost: Int
    package let seeds: @Sendable () throws -> [[UInt8]]
    /// - Throws: ``FuzzFailure``.
    package let run: @Sendable ([UInt8]) throws -> Void
    /// Modules or folders under test, with those below them. Earlier runs of an input count while these are unchanged.
    package private(set) var modules: [String] = []

    /// Called after the common beginning of every input, such as a handshake, so that a fuzzer ignores its coverage.
    /// Set once, before the first input.
    nonisolated(unsafe) package static var preludeEnded: @Sendable () -> Void = {}

    init(
        _ name: String, byteCountLimit: Int = 4_096, cost: Int = 1, seeds: @escaping @Sendable () throws -> [[UInt8]],
        run: @escaping @Sendable ([UInt8]) throws -> Void
    ) {
        self.name = name
        self.byteCountLimit = byteCountLimit
        self.cost = cost
        self.seeds = seeds
        self.run = run
    }

    /// Every target except the canaries.
    package static let all: [FuzzTarget] =
        of(core, wireTargets) + of(control, textTargets) + of(crypto, handshakeTargets) + of(transport, linkTargets)
        + of(control, controlTargets) + of(runtime, homeTargets) + of(core, storedTargets)
        + of(["Store"] + crypto, storeTargets) + of(core, coreTargets) + of(datagrams, datagramTargets)
        + of(discovery + crypto, discoveryTargets)
        + of(["Transport/PortMapping"] + discovery + crypto, portMappingTargets) + of(core + discovery, codeTargets)
        + of(core, mailboxTargets + mailedTargets)

    private static let crypto = ["Crypto"]
    private static let discovery = ["Transport/LAN/Discovery"]
    private static let datagrams = ["Transport/Datagrams", "Transport/Links"] + crypto
    private static let transport = ["Transport"] + crypto
    private static let core = ["Messaging"] + crypto
    private static let control = ["Control", "Program/Control/Methods"] + core
    private static let runtime = ["NodeRuntime", "Store", "Messaging"] + transport

    private static func of(_ modules: [String], _ targets: [FuzzTarget]) -> [FuzzTarget] {
        targets.map { target in
            var target = target
            target.modules = modules
            return target
        }
    }

    package static func named(_ name: String) -> FuzzTarget? {
        (all + [.canary, .memoryCanary]).first { $0.name == name }
    }
}

func expect(_ condition: Bool, _ description: @autoclosure () -> String) throws {
    if !condition { throw FuzzFailure(description()) }
}
