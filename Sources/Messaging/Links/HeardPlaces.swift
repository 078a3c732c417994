/// Endpoints at which local discovery has heard another inbox, the newest first. In memory only; never sent to a peer.
struct HeardPlaces: Hashable, Sendable {
    private struct Place: Hashable, Sendable {
        let endpoint: Endpoint
        let at: Timestamp
    }

    private var places: [Place] = []

    mutating func note(_ endpoint: Endpoint, now: Timestamp) {
        places.removeAll { $0.endpoint == endpoint || now - $0.at >= Limits.heardLifetime }
        places.insert(Place(endpoint: endpoint, at: now), at: 0)
        places.removeLast(max(0, places.count - Limits.heardCount))
    }

    /// Only recent ones.
    func endpoints(now: Timestamp) -> [Endpoint] {
        places.filter { now - $0.at < Limits.heardLifetime }.map(\.endpoint)
    }

    /// Recent ones first, then the other known ones.
    func endpoints(now: Timestamp, before known: [Endpoint]) -> [Endpoint] {
        let heard = endpoints(now: now)
        return heard + known.filter { !heard.contains($0) }
    }
}
