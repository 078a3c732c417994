import NIOCore

/// A knock over TCP and over UDP: the first that arrives ends the race, with or without an answer.
final class KnockRace {
    private var completion: ((Result<[UInt8]?, DialFailure>) -> Void)?
    var startsDatagrams: (() -> Void)?
    var timer: Scheduled<Void>?
    var underWay = 1
    private var failure: DialFailure?

    init(_ completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void) { self.completion = completion }

    func startDatagrams() {
        guard let startsDatagrams, completion != nil else { return }
        self.startsDatagrams = nil
        underWay += 1
        startsDatagrams()
    }

    func failed(_ failure: DialFailure) {
        if self.failure == nil { self.failure = failure }
        startDatagrams()
        underWay -= 1
        if underWay == 0 { end(.failure(self.failure ?? failure)) }
    }

    func end(_ result: Result<[UInt8]?, DialFailure>) {
        guard let completion else { return }
        self.completion = nil
        startsDatagrams = nil
        timer?.cancel()
        completion(result)
    }
}
