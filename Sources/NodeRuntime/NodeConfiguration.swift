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
    /// The bound on what is kept in conversations that have none of their own; absent: none.
    package var cap: String?

    package init(name: String?, listen: [Endpoint], advertise: [Endpoint], policy: String = LifetimePolicy.ask.text) {
        self.name = name
        self.listen = listen
        self.advertise = advertise
        self.policy = policy
    }

    /// - Throws: ``HomeFileError``, which names file and line.
    package static func load(home: String) throws(HomeFileError) -> NodeConfiguration {
        try HomeFile.load(NodeConfiguration.self, fileName, home: home)
    }

    /// Replaces the file, durably.
    package func save(home: String) throws(HomeFileError) {
        try HomeFile.save(self, Self.fileName, home: home)
    }
}
