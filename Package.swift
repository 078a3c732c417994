// swift-tools-version: 6.2
// Formatted by hand, as a list of targets.
// swift-format-ignore-file
import PackageDescription

/// Every Swift target is built with the same settings.
let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .treatAllWarnings(as: .error),
]

let nioCore: Target.Dependency = .product(name: "NIOCore", package: "swift-nio")
let nioPosix: Target.Dependency = .product(name: "NIOPosix", package: "swift-nio")
let nioHTTP1: Target.Dependency = .product(name: "NIOHTTP1", package: "swift-nio")
let nioEmbedded: Target.Dependency = .product(name: "NIOEmbedded", package: "swift-nio")
let deque: Target.Dependency = .product(name: "DequeModule", package: "swift-collections")
let heap: Target.Dependency = .product(name: "HeapModule", package: "swift-collections")
let logging: Target.Dependency = .product(name: "Logging", package: "swift-log")

func target(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: settings)
}

func tests(_ name: String, _ dependencies: [Target.Dependency], exclude: [String] = []) -> Target {
    .testTarget(name: name, dependencies: dependencies, exclude: exclude, swiftSettings: settings)
}

let package = Package(
    name: "mayfly",
    products: [
        .executable(name: "mayfly", targets: ["mayfly"])
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    ],
    targets: [
        .systemLibrary(name: "CSodium", pkgConfig: "libsodium", providers: [.apt(["libsodium-dev"])]),
        .systemLibrary(name: "COpenSSL", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(name: "CSecp256k1", pkgConfig: "libsecp256k1", providers: [.apt(["libsecp256k1-dev"])]),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
        .systemLibrary(name: "CMiniUPnP", pkgConfig: "miniupnpc", providers: [.apt(["libminiupnpc-dev"])]),
        // Without a file for pkg-config.
        .systemLibrary(name: "CLinux"),
        // Replaces free(3) of whatever links it: the node's program, no other.
        .target(name: "CWipingHeap"),

        target(
            "Cryptography",
            ["CSodium", "COpenSSL", "CSecp256k1", "CZlib", .product(name: "Crypto", package: "swift-crypto")]
        ),
        target("Messaging", ["Cryptography", deque, heap]),
        target("Store", ["Cryptography", "CLinux", deque, heap]),
        target("Transport", ["Cryptography", "CLinux", "CMiniUPnP", nioCore, nioPosix, deque, heap]),
        target("Control", ["Messaging", "Cryptography", nioCore, nioPosix, deque]),
        target(
            "NodeRuntime",
            ["Transport", "Store", "Messaging", "Cryptography", "CLinux", nioCore, nioPosix, logging, deque]
        ),
        target(
            "Program",
            [
                "NodeRuntime", "Control", "Store", "Transport", "Messaging", "Cryptography", "CLinux",
                nioCore, nioPosix, nioHTTP1, logging, deque,
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ]
        ),
        .executableTarget(name: "mayfly", dependencies: ["Program", "CWipingHeap"], swiftSettings: settings),

        .target(
            name: "Simulation",
            dependencies: ["TestSupport", "Messaging", "Cryptography", heap],
            path: "Tests/Simulation",
            swiftSettings: settings
        ),
        .executableTarget(
            name: "simulate",
            dependencies: ["Simulation", "NodeSimulation"],
            path: "Tests/Simulate",
            swiftSettings: settings
        ),

        .target(
            name: "SimulatedDisk",
            dependencies: ["Store"],
            path: "Tests/SimulatedDisk",
            swiftSettings: settings
        ),
        .target(
            name: "FuzzTargets",
            dependencies: [
                "Simulation", "SimulatedDisk", "TestSupport", "Program", "NodeRuntime", "Control", "Transport", "Store",
                "Messaging", "Cryptography", nioCore, nioEmbedded, .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            path: "Tests/FuzzTargets",
            exclude: ["mayfly.proto"],
            swiftSettings: settings
        ),
        // Between the program and libFuzzer: only with `make fuzz`, otherwise empty.
        .target(name: "CFuzz", path: "Tests/CFuzz"),
        // Its entry is libFuzzer's: `make fuzz`. Without it, it says so.
        .executableTarget(
            name: "fuzz",
            dependencies: ["FuzzTargets", "CFuzz"],
            path: "Tests/Fuzz",
            exclude: ["Corpus", "Dictionaries", "fuzz.sh"],
            swiftSettings: settings
        ),
        tests("FuzzTests", ["FuzzTargets"]),
        .target(
            name: "Adversary",
            dependencies: ["TestSupport", "Control", "Transport", "Messaging", "Cryptography"],
            path: "Tests/Adversary",
            swiftSettings: settings
        ),
        .target(
            name: "TestSupport",
            dependencies: ["Messaging", "Cryptography", "CLinux"],
            path: "Tests/TestSupport",
            swiftSettings: settings
        ),
        .executableTarget(
            name: "hostile",
            dependencies: ["Adversary", "TestSupport", "Control", "Messaging", "Transport", "Cryptography"],
            path: "Tests/Hostile",
            exclude: ["without-tcp.sh", "with-neighbour.sh"],
            swiftSettings: settings
        ),
        .target(
            name: "StoreCampaigns",
            dependencies: ["SimulatedDisk", "Store", "Messaging", "Cryptography"],
            path: "Tests/StoreCampaigns",
            swiftSettings: settings
        ),
        .executableTarget(
            name: "campaign",
            dependencies: ["StoreCampaigns", "SimulatedDisk", "Store"],
            path: "Tests/Campaign",
            swiftSettings: settings
        ),

        .target(
            name: "NodeSimulation",
            dependencies: [
                "Simulation", "SimulatedDisk", "NodeRuntime", "Transport", "Store", "Messaging",
                "Cryptography", "CSodium", nioCore, logging, heap, deque,
            ],
            path: "Tests/NodeSimulation",
            swiftSettings: settings
        ),

        .executableTarget(
            name: "linkrates",
            dependencies: ["Transport", "Cryptography", nioCore, nioPosix],
            path: "Tests/LinkRates",
            exclude: ["emulator.py", "compare.sh", "relay.py"],
            swiftSettings: settings
        ),
        tests("CryptoTests", ["Cryptography", "CSodium"], exclude: ["Vectors"]),
        tests("MessagingTests", ["TestSupport", "Messaging", "Cryptography"]),
        tests("SimulationTests", ["Simulation"]),
        tests("NodeSimulationTests", ["NodeSimulation", "Simulation"]),
        tests("WireTests", ["FuzzTargets", "TestSupport", "Messaging", "Cryptography"]),
        tests("StoreTests", ["TestSupport", "StoreCampaigns", "SimulatedDisk", "Store", "Cryptography"]),
        tests("TransportTests", ["TestSupport", "Transport", "Cryptography", nioCore, nioPosix, nioEmbedded, heap]),
        tests(
            "NodeRuntimeTests",
            [
                "Adversary", "NodeRuntime", "Transport", "SimulatedDisk", "Store", "Messaging", "Cryptography",
                nioPosix, nioCore, nioEmbedded, logging,
            ]
        ),
        tests(
            "EndToEndTests",
            [
                "mayfly", "Program", "Control", "Adversary", "TestSupport", "Store", "Transport", "Messaging",
                "Cryptography", "CLinux", nioCore,
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ]
        ),
        .executableTarget(
            name: "benchmarks",
            dependencies: [
                "Adversary", "TestSupport", "Store", "Messaging", "Control", "Cryptography",
            ],
            path: "Tests/Benchmarks",
            exclude: ["expiry.py"],
            swiftSettings: settings
        ),
        // The floor that `benchmarks` compares the node with: two processes in C.
        .executableTarget(name: "floor", dependencies: ["CSodium"], path: "Tests/Floor"),
        // Replaces malloc(3) of `allocations`, no other.
        .target(name: "CCountingHeap", path: "Tests/CCountingHeap"),
        .executableTarget(
            name: "allocations",
            dependencies: [
                "CCountingHeap", "NodeRuntime", "Control", "Store", "Messaging", "Cryptography", nioCore, nioPosix,
                logging,
            ],
            path: "Tests/Allocations",
            swiftSettings: settings
        ),
        tests("ControlTests", ["Program", "Control", "Messaging", "NodeRuntime", nioCore, nioPosix]),
        tests("ChatTests", ["Program", "Control", "Messaging"]),
    ]
)
