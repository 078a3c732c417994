import Messaging

/// `config.json` in the home, first written by `init`.
package struct NodeConfiguration: Hashable, Sendable, Codable {
    package static let fileName = "config.json"

    /// The name given to `init --name`; shown with the contact card.
    package var name: String?
    package var listen: [Endpoint]
    /// Endpoints that peers are told instead of `listen` (a port forwarding, a name); absent: none.
    package var advertise: [Endpoint]?
    package var advertised: [Endpoint] { advertise ?? [] }
    /// The default policy for proposals, for conversations without their own.
    package var policy: String
    /// Number of awake inboxes; absent: ``Limits/inboxCapacity``.
    package var capacity: Int?
    /// The default cap on lifetimes, for conversations without their own; absent: none.
    package var cap: String?
    /// Largest file that is sent or accepted, in bytes; absent: ``Limits/attachmentByteCount``.
    package var attachmentByteCount: Int64?
    /// Whether to send read receipts in conversations without their own setting; absent: no.
    package var readReceipts: Bool?
    /// Whether links also use UDP; absent: yes.
    package var datagrams: Bool?
    /// Whether gateways are asked for port mappings; absent: no.
    package var mapPorts: Bool?
    /// Service as a rendezvous node; absent: none.
    package var rendezvous: Rendezvous?
    /// Service as a mailbox; absent: none.
    package var mailbox: Mailbox?
    package var storage: Storage?

    /// Limits on stored content of peers, in bytes.
    package struct Storage: Hashable, Sendable, Codable {
        /// Per inbox.
        package var inboxByteCount: Int64
        /// Space that stays free on the disk; at most a twentieth of the disk.
        package var freeByteCount: Int64

        fileprivate enum CodingKeys: String, CodingKey, CaseIterable {
            case inboxByteCount = "bytesPerInbox"
            case freeByteCount = "bytesFree"
        }

        package init(
            inboxByteCount: Int64 = Limits.storedByteCount, freeByteCount: Int64 = Int64(clamping: Limits.freeByteCount)
        ) {
            self.inboxByteCount = inboxByteCount
            self.freeByteCount = freeByteCount
        }

        package init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            let usual = Storage()
            inboxByteCount = try container.decodeIfPresent(Int64.self, forKey: .inboxByteCount) ?? usual.inboxByteCount
            freeByteCount = try container.decodeIfPresent(Int64.self, forKey: .freeByteCount) ?? usual.freeByteCount
        }
    }

    /// A ``DiscoverySetting``; absent: `off`.
    package var discover: String?
    /// As `mayfly run --log-level`; absent: its default.
    package var logLevel: LogLevel?

    package var metrics: Metrics?

    /// The HTTP address of the metrics; absent: none.
    package struct Metrics: Hashable, Sendable, Codable { package var listen: LoopbackEndpoint }

    package enum LogLevel: String, Hashable, Sendable, Codable, CaseIterable {
        case trace, debug, info, notice, warning, error, critical

        package init(from decoder: any Decoder) throws { self = try decoder.choice() }
    }

    package struct Rendezvous: Hashable, Sendable, Codable {
        package var serve: Bool?
        /// `peers`: those in `peers.json`; `everybody`: all holders of our card.
        package var admit: Admission?
        /// Served nodes at a time.
        package var users: Int?
        package var reservationsPerUser: Int?
        package var streamsPerUser: Int?
        package var streamsPerReservation: Int?
        package var streams: Int?
        /// In one direction of a stream; in total.
        package var bytesPerSecond: Int?
        package var bytesPerSecondTotal: Int?
        /// Idle streams end after this time.
        package var idleSeconds: Int?

        package enum Admission: String, Hashable, Sendable, Codable, CaseIterable {
            case peers, everybody

            package init(from decoder: any Decoder) throws { self = try decoder.choice() }
        }

        fileprivate var numbers: [Number] {
            [
                ("users", users, 1...4_096), ("reservationsPerUser", reservationsPerUser, 1...16_384),
                ("streamsPerUser", streamsPerUser, 1...1_024),
                ("streamsPerReservation", streamsPerReservation, 1...1_024), ("streams", streams, 1...16_384),
                ("bytesPerSecond", bytesPerSecond, 1_024...(1 << 30)),
                ("bytesPerSecondTotal", bytesPerSecondTotal, 1_024...(1 << 32)),
                ("idleSeconds", idleSeconds, 30...86_400),
            ]
        }

        package var terms: RelayTerms {
            var terms = RelayTerms()
            terms.isServing = serve ?? false
            terms.isOpen = admit == .everybody
            terms.userCount = users ?? terms.userCount
            terms.reservationsPerUser = reservationsPerUser ?? terms.reservationsPerUser
            terms.streamsPerUser = streamsPerUser ?? terms.streamsPerUser
            terms.streamsPerReservation = streamsPerReservation ?? terms.streamsPerReservation
            terms.streamCount = streams ?? terms.streamCount
            terms.byteRate = bytesPerSecond ?? terms.byteRate
            terms.byteRateTotal = bytesPerSecondTotal ?? terms.byteRateTotal
            if let idleSeconds { terms.idle = Milliseconds(idleSeconds) * .second }
            return terms
        }
    }

    /// A mailbox's limits; it serves named peers only.
    package struct Mailbox: Hashable, Sendable, Codable {
        package var serve: Bool?
        /// Over all owners.
        package var boxes: Int?
        package var slotsPerBox: Int?
        package var bytesPerBox: Int?
        /// Bodies that must not be written to disk.
        package var bytesInMemory: Int?
        /// Longest storage time, except for explosion notices.
        package var hours: Int?

        fileprivate var numbers: [Number] {
            [
                ("boxes", boxes, 1...4_096), ("slotsPerBox", slotsPerBox, 1...512),
                ("bytesPerBox", bytesPerBox, SlotSize.largest...(1 << 30)),
                ("bytesInMemory", bytesInMemory, 0...(1 << 32)), ("hours", hours, 1...720),
            ]
        }

        package var terms: MailboxTerms {
            var terms = MailboxTerms()
            terms.isServing = serve ?? false
            terms.boxCount = boxes ?? terms.boxCount
            terms.slotCount = slotsPerBox ?? terms.slotCount
            terms.boxByteCount = bytesPerBox ?? terms.boxByteCount
            terms.memoryByteCount = bytesInMemory ?? terms.memoryByteCount
            if let hours { terms.longest = Milliseconds(hours) * .hour }
            return terms
        }
    }

    package var hooks: [Hook]?

    package struct Hook: Hashable, Sendable, Codable {
        package var events: [String]?
        /// The program's absolute path and its arguments; no shell is involved.
        package var command: [String]
    }

    package init(
        name: String?, listen: [Endpoint], advertise: [Endpoint], policy: String = LifetimePolicy.ask.text,
        capacity: Int? = nil
    ) {
        self.name = name
        self.listen = listen
        self.advertise = advertise
        self.policy = policy
        self.capacity = capacity
    }

    /// - Throws: ``HomeFileError``, which names file and line.
    package static func load(home: String) throws(HomeFileError) -> NodeConfiguration {
        try read(home: home).configuration
    }

    package static func read(home: String) throws(HomeFileError) -> (bytes: [UInt8], configuration: NodeConfiguration) {
        let path = "\(home)/\(fileName)"
        let bytes = try HomeFile.read(path)
        return (bytes, try parse(bytes, path: path))
    }

    package static func parse(_ bytes: [UInt8], path: String) throws(HomeFileError) -> NodeConfiguration {
        try HomeFile.checkNames(bytes, path: path, known: settings)
        let configuration = try HomeFile.decode(NodeConfiguration.self, bytes, path: path)
        func wrong(_ place: [FilePathKey], _ reason: String) -> HomeFileError {
            HomeFileError(malformed: reason, at: place, bytes, path: path)
        }
        if let capacity = configuration.capacity, !(1...Limits.inboxCapacityMaximum).contains(capacity) {
            throw wrong(["capacity"], "found \(capacity); it is a number from 1 to \(Limits.inboxCapacityMaximum)")
        }
        if let discover = configuration.discover, DiscoverySetting(discover) == nil {
            throw wrong(["discover"], "expected off, lan or lan:INTERFACE,…, found \(discover)")
        }
        for (object, numbers) in [
            ("rendezvous", configuration.rendezvous?.numbers), ("mailbox", configuration.mailbox?.numbers),
        ] {
            for (name, number, range) in numbers ?? [] {
                guard let number, !range.contains(number) else { continue }
                throw wrong(
                    [FilePathKey(stringValue: object), FilePathKey(stringValue: name)],
                    "found \(number); it is a number from \(range.lowerBound) to \(range.upperBound)")
            }
        }
        for (name, byteCount) in [
            ("bytesPerInbox", configuration.storage?.inboxByteCount),
            ("bytesFree", configuration.storage?.freeByteCount),
        ] where byteCount ?? 0 < 0 {
            throw wrong(["storage", FilePathKey(stringValue: name)], "a number of bytes is not negative")
        }
        if LifetimePolicy(configuration.policy) == nil {
            throw wrong(["policy"], "expected ask, refuse or accept-up-to:LIFETIME, found \(configuration.policy)")
        }
        // An unknown cap must not count as none: the user expects a bound.
        if let cap = configuration.cap, LifetimeCap(cap) == nil {
            let lifetimes = Lifetime.allCases.map(\.rawValue).joined(separator: ", ")
            throw wrong(["cap"], "expected none or one of \(lifetimes), found \(cap)")
        }
        return configuration
    }

    package enum CodingKeys: String, CodingKey, CaseIterable, Sendable {
        case name, listen, advertise, policy, capacity, cap, attachmentByteCount, readReceipts, storage, discover, hooks
        case datagrams = "udp"
        case rendezvous, mailbox, mapPorts, logLevel, metrics
    }

    private static let settings = [
        "": CodingKeys.allCases.map(\.rawValue), "storage": Storage.CodingKeys.allCases.map(\.rawValue),
        "rendezvous": HomeFile.names(of: Rendezvous()), "mailbox": HomeFile.names(of: Mailbox()), "metrics": ["listen"],
        "hooks.*": HomeFile.names(of: Hook(command: [])),
    ]

    fileprivate typealias Number = (name: String, value: Int?, range: ClosedRange<Int>)

    /// - Parameter events: the known event names.
    package func checkHooks(events: [String], home: String) throws(HomeFileError) {
        let path = "\(home)/\(Self.fileName)"
        func wrong(_ place: [FilePathKey], _ reason: String) -> HomeFileError {
            HomeFileError(malformed: reason, at: place, (try? HomeFile.read(path)) ?? [], path: path)
        }
        let hooks = hooks ?? []
        guard hooks.count <= Self.hookCount else {
            throw wrong(["hooks"], "at most \(Self.hookCount), found \(hooks.count)")
        }
        for (index, hook) in hooks.enumerated() {
            let here: [FilePathKey] = ["hooks", FilePathKey(intValue: index)]
            guard let program = hook.command.first, program.hasPrefix("/"),
                hook.command.allSatisfy({ !$0.utf8.contains(0) })
            else { throw wrong(here + ["command"], "expected a program's absolute path and its arguments") }
            for (position, event) in (hook.events ?? []).enumerated() where !events.contains(event) {
                throw wrong(
                    here + ["events", FilePathKey(intValue: position)],
                    "there is no event `\(event)`; `mayfly schema` lists them")
            }
        }
    }

    package static let hookCount = 64

    package func save(home: String) throws(HomeFileError) { try HomeFile.save(self, Self.fileName, home: home) }

    /// ``save(home:)``, unless the file was edited since it was read.
    /// - Returns: whether the file was replaced.
    package func save(home: String, over old: [UInt8]?) throws(HomeFileError) -> Bool {
        try HomeFile.replace(Self.fileName, with: HomeFile.encode(self), over: old, home: home)
    }
}

extension Decoder {
    func choice<Value: RawRepresentable<String> & CaseIterable>() throws -> Value {
        let container = try singleValueContainer()
        let text = try container.decode(String.self)
        guard let value = Value(rawValue: text) else {
            let known = Value.allCases.map(\.rawValue).joined(separator: ", ")
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "`\(text)` is not one of \(known)")
        }
        return value
    }
}

/// LAN discovery of peers: `off`, `lan`, or `lan:` and interface names.
package enum DiscoverySetting: Hashable, Sendable, CustomStringConvertible {
    case off
    case lan(interfaces: [String]?)

    package init?(_ text: some StringProtocol) {
        switch text {
        case "off": self = .off
        case "lan": self = .lan(interfaces: nil)
        default:
            guard text.hasPrefix("lan:") else { return nil }
            let names = String(text).dropFirst(4).split(separator: ",", omittingEmptySubsequences: false).map(
                String.init)
            // At most IFNAMSIZ - 1 bytes, and no character that Linux forbids in interface names.
            guard names.allSatisfy({ (1...15).contains($0.utf8.count) && $0.utf8.allSatisfy(Self.isAllowed) }) else {
                return nil
            }
            self = .lan(interfaces: names)
        }
    }

    private static func isAllowed(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte < 0x7f && byte != UInt8(ascii: "/") && byte != UInt8(ascii: ":")
    }

    package var description: String {
        switch self {
        case .off: "off"
        case .lan(nil): "lan"
        case .lan(let names?): "lan:" + names.joined(separator: ",")
        }
    }
}

/// A loopback address and a TCP port: `127.0.0.1:9464` or `[::1]:9464`.
package struct LoopbackEndpoint: Hashable, Sendable, Codable, CustomStringConvertible {
    package let host: String
    package let port: UInt16

    /// - Returns: `nil` for host names and for non-loopback addresses.
    package init?(_ text: String) {
        guard let endpoint = Endpoint("tcp://\(text)") else { return nil }
        let parts = endpoint.host.split(separator: ".", omittingEmptySubsequences: false)
        let isIPv4 = parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0) != nil }
        guard isIPv4 || endpoint.host == "::1" else { return nil }
        host = endpoint.host
        port = endpoint.port
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let text = try container.decode(String.self)
        guard let value = LoopbackEndpoint(text) else {
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "expected a loopback address with a port, such as 127.0.0.1:9464, found `\(text)`")
        }
        self = value
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }

    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}
