import Logging
import Messaging
import NIOCore
import Transport

/// Replaces listeners of the running node. Listeners in both lists stay open. New ones are bound first. An old listener
/// closes before that only if a new one needs its port.
struct ListenerChange {
    private let listening: Listening
    private var added: [Listening.Entry] = []
    private var removed: [Listening.Entry] = []
    /// The removed listeners that were closed to free their ports.
    private var closed: [Listening.Entry] = []

    /// - Throws: `ListenFailure`; the previous listeners are then restored.
    init(to wanted: [Messaging.Endpoint], on listening: Listening, isolation: isolated (any Actor)? = #isolation)
        async throws
    {
        self.listening = listening
        var missing = wanted
        for entry in listening.entries {
            if let index = missing.firstIndex(where: { $0 == entry.endpoint }) {
                missing.remove(at: index)
            } else if entry.endpoint != nil {
                removed.append(entry)
            }
        }
        do {
            var failed: ListenFailure?
            for endpoint in missing {
                do { added.append(try await bind(endpoint)) } catch let failure as ListenFailure {
                    guard Listening.isOfMissingFamily(endpoint, failure) else { throw failure }
                    failed = failure
                }
            }
            if let failed, added.isEmpty, listening.entries.count == removed.count { throw failed }
        } catch {
            await undo()
            throw error
        }
    }

    private mutating func bind(_ endpoint: Messaging.Endpoint, isolation: isolated (any Actor)? = #isolation)
        async throws -> Listening.Entry
    {
        do { return try await listening.bind(endpoint) } catch ListenFailure.addressInUse {
            let inTheWay = removed.filter { entry in
                entry.address.port == Int(endpoint.port) && !closed.contains { $0.address == entry.address }
            }
            guard !inTheWay.isEmpty else { throw ListenFailure.addressInUse(Transport.Endpoint(endpoint)) }
            for entry in inTheWay {
                await listening.close(entry)
                closed.append(entry)
            }
            return try await listening.bind(endpoint)
        }
    }

    func undo(isolation: isolated (any Actor)? = #isolation) async {
        for entry in added { await listening.close(entry) }
        for entry in closed {
            guard !listening.isStopped, let endpoint = entry.endpoint else { continue }
            // The former port: peers know it, also if the system chose it.
            do { listening.replace(entry, by: try await listening.bind(endpoint, port: entry.address.port)) } catch {
                listening.remove(entry)
                listening.log.error("a listener could not be opened again", metadata: ["error": "\(error)"])
            }
        }
    }

    /// Closes the removed listeners; the new ones take over.
    func end(isolation: isolated (any Actor)? = #isolation) async {
        for entry in removed {
            listening.remove(entry)
            if !closed.contains(where: { $0.address == entry.address }) { await listening.close(entry) }
        }
        for entry in added { listening.add(entry) }
    }
}

extension Transport.Endpoint {
    fileprivate init(_ endpoint: Messaging.Endpoint) { self.init(host: endpoint.host, port: Int(endpoint.port)) }
}
