import FoundationEssentials
import Messaging

/// `config.json` in the home: what `init` was told.
package struct NodeConfiguration: Hashable, Sendable, Codable {
    package static let fileName = "config.json"

    /// What `init --name` was given; shown with the contact card.
    package var name: String?
    /// Where the node listens.
    package var listen: [Endpoint]
    /// What it tells others, where that differs from `listen` (a port forwarding, a name).
    package var advertise: [Endpoint]
    /// The answer to proposals in conversations that have none of their own.
    package var policy: String
    /// How many inboxes are awake at a time; absent: ``Limits/inboxCapacity``.
    package var capacity: Int?

    package init(
        name: String?,
        listen: [Endpoint],
        advertise: [Endpoint],
        policy: String = LifetimePolicy.ask.text,
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
        let configuration = try HomeFile.load(NodeConfiguration.self, fileName, home: home)
        if let capacity = configuration.capacity, !(1...Limits.inboxCapacityMaximum).contains(capacity) {
            throw HomeFileError(
                kind: .malformed,
                path: "\(home)/\(fileName)",
                line: nil,
                reason: "capacity is \(capacity); it is a number from 1 to \(Limits.inboxCapacityMaximum)"
            )
        }
        return configuration
    }

    /// Replaces the file, durably.
    package func save(home: String) throws(HomeFileError) {
        try HomeFile.save(self, Self.fileName, home: home)
    }
}
