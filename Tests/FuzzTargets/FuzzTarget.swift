/// What a target has found wrong, apart from a trap, a hang or too much memory.
package struct FuzzFailure: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}

/// One decoder or one machine that bytes from outside reach. Whatever the bytes are, ``run`` returns: what it refuses it
/// refuses with an error of its own, which the target keeps to itself.
package struct FuzzTarget: Sendable {
    /// Of the corpus directory, and of `make fuzz TARGET=…`.
    package let name: String
    /// Longest input that is worth trying, in bytes.
    package let byteCountLimit: Int
    /// How many inputs of a small decoder take as long as one of this target, roughly.
    package let cost: Int
    /// Inputs from our own encoders.
    package let seeds: @Sendable () throws -> [[UInt8]]
    /// - Throws: ``FuzzFailure``.
    package let run: @Sendable ([UInt8]) throws -> Void
    /// The modules, or folders of one, that it tries, and those below them: inputs count as run of the same code while these stay the same.
    package private(set) var modules: [String] = []

    /// Called by a target when what every input begins with is done, such as a handshake: a fuzzer learns from what comes
    /// after it. Set once, before the first input.
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

    /// Every target but the one that must fail.
    package static let all: [FuzzTarget] =
        of(wire, wireTargets) + of(control, textTargets) + of(crypto, handshakeTargets) + of(transport, linkTargets)
        + of(control, controlTargets) + of(runtime, homeTargets) + of(wire, storedTargets)
        + of(["Store"] + crypto, storeTargets) + of(wire, coreTargets) + of(datagrams, datagramTargets)
        + of(discovery + crypto, discoveryTargets)
        + of(["Transport/PortMapping"] + discovery + crypto, portMappingTargets) + of(core + discovery, codeTargets)
        + of(wire, mailboxTargets + mailedTargets)

    private static let crypto = ["Crypto"]
    private static let discovery = ["Transport/LAN/Discovery"]
    private static let datagrams = ["Transport/Datagrams", "Transport/Links"] + crypto
    private static let transport = ["Transport"] + crypto
    private static let core = ["Messaging"] + crypto
    private static let control = ["Control"] + core
    private static let wire = ["Wire"] + core
    private static let runtime = ["NodeRuntime", "Store", "Wire", "Messaging"] + transport

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

/// Throws ``FuzzFailure`` unless `condition` holds.
func expect(_ condition: Bool, _ description: @autoclosure () -> String) throws {
    if !condition { throw FuzzFailure(description()) }
}
