import Adversary
import Control
import Dispatch
import Foundation
import Glibc
import Synchronization

/// Two honest users that send messages and dial without a pause.
final class HonestPair: Sendable {
    /// Milliseconds each.
    struct Samples: Sendable {
        var messages: [Double] = []
        var connects: [Double] = []
        var failures = 0

        func message(_ share: Double) -> Double { messages.percentile(share) }
        func connect(_ share: Double) -> Double { connects.percentile(share) }
    }

    private let homes: (ann: String, bob: String, carol: String)
    private let conversation: String

    /// - Parameter ann: The node under attack, where `bob` is a member and which `carol` knows by its card as `ann`.
    init(ann: NodeProcess, bob: NodeProcess, carol: NodeProcess, conversation: String) {
        homes = (ann.home, bob.home, carol.home)
        self.conversation = conversation
    }

    func chat<Result: Sendable>(seconds: Double, during body: () -> Result) -> (Samples, Result) {
        let samples = Mutex(Samples())
        let isOver = Mutex(false)
        let start = ContinuousClock.now
        let goesOn: @Sendable () -> Bool = { !isOver.withLock { $0 } }
        let threads = [
            Background { [self] in talk(samples, patience: 20, while: goesOn) },
            Background { [self] in dial(samples, while: goesOn) },
        ]
        let result = body()
        let rest = Duration.seconds(seconds) - (ContinuousClock.now - start)
        if rest > .zero { usleep(UInt32(rest / .microseconds(1))) }
        isOver.withLock { $0 = true }
        for thread in threads { thread.wait() }
        return (samples.withLock { $0 }, result)
    }

    /// Checks that the harness can fail: a message to the stopped process `bob` must count as failed.
    func seesSilence(of bob: pid_t) -> Bool {
        kill(bob, SIGSTOP)
        _ = Background {
            usleep(3_000_000)
            kill(bob, SIGCONT)
        }
        let samples = Mutex(Samples())
        var rounds = 0
        talk(samples, patience: 1) {
            rounds += 1
            return rounds == 1
        }
        return samples.withLock { $0.failures == 1 && $0.messages.isEmpty }
    }

    /// - Parameter patience: Seconds after which a message has failed.
    private func talk(_ samples: borrowing Mutex<Samples>, patience: Int, while goesOn: () -> Bool) {
        guard let bob = try? ControlClient(home: homes.bob), let ann = try? ControlClient(home: homes.ann) else {
            return samples.withLock { $0.failures += 1 }
        }
        var number = 0
        while goesOn() {
            number += 1
            let (from, to) = number % 2 == 0 ? (bob, ann) : (ann, bob)
            let start = ContinuousClock.now
            let answer = try? from.call(
                "send",
                [
                    "conversation": .string(conversation), "text": "how are you", "wait": "delivered",
                    "timeout": .string("\(patience)s"),
                ])
            let time = (ContinuousClock.now - start) / .milliseconds(1)
            let isThere = answer?["state"] == "delivered"
            samples.withLock { if isThere { $0.messages.append(time) } else { $0.failures += 1 } }
            // Unread messages fill the memory of an ephemeral conversation.
            if number % 100 < 2 { _ = try? to.call("read", ["conversation": .string(conversation), "last": 256]) }
            usleep(1_000)
        }
    }

    private func dial(_ samples: borrowing Mutex<Samples>, while goesOn: () -> Bool) {
        guard let carol = try? ControlClient(home: homes.carol) else { return samples.withLock { $0.failures += 1 } }
        while goesOn() {
            let start = ContinuousClock.now
            let answer = try? carol.call("peer.ping", ["name": "ann", "timeout": "20s"])
            let time = (ContinuousClock.now - start) / .milliseconds(1)
            samples.withLock { if answer != nil { $0.connects.append(time) } else { $0.failures += 1 } }
            usleep(5_000)
        }
    }
}
