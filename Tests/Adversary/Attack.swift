import Cryptography
import Foundation
import Messaging
import Synchronization

/// The node under attack, and the attackers' knowledge of it.
package struct Target: Sendable {
    package var address: NodeAddress
    /// Its contact card, which every named peer has.
    package var card: ContactCard
    /// Invite of a conversation with attackers as members.
    package var invite: String
    /// Invite of a conversation that joiners may fill.
    package var crowded: String
    package var sleeping: [String]
    package var socket: String
    /// Days since the start of 1970, for tokens.
    package var day: UInt32
    /// Attackers that use it as a rendezvous node: contact inboxes among its named peers.
    package var users: [IdentityKey] = []
    /// Attackers that use it as a mailbox: contact inboxes among its named peers.
    package var owners: [IdentityKey] = []
    /// Set where the attackers share a LAN with the node.
    package var neighbourhood: Neighbourhood?

    package init(
        address: NodeAddress, card: ContactCard, invite: String = "", crowded: String = "", sleeping: [String] = [],
        socket: String = "", day: UInt32
    ) {
        (self.address, self.card, self.invite, self.crowded, self.sleeping) = (address, card, invite, crowded, sleeping)
        (self.socket, self.day) = (socket, day)
    }
}

package struct Tally: Sendable {
    package var count = 0
    /// Attempts that got at least one byte.
    package var answered = 0
    package var refused = 0
    package var held = 0
    package var failure: String?

    package init() {}

    static func + (left: Tally, right: Tally) -> Tally {
        var sum = left
        sum.count += right.count
        sum.answered += right.answered
        sum.refused += right.refused
        sum.held += right.held
        sum.failure = left.failure ?? right.failure
        return sum
    }
}

package struct Effort: Sendable {
    package var until: ContinuousClock.Instant
    package var crowd: Int
    package var threads: Int
    /// The attack ends after this number of units.
    package var limit: Int

    package init(seconds: Double, crowd: Int, threads: Int = 2, limit: Int = .max) {
        until = .now + .seconds(seconds)
        (self.crowd, self.threads, self.limit) = (crowd, threads, limit)
    }

    var goesOn: Bool { ContinuousClock.now < until }

    /// The same with a single thread.
    var alone: Effort {
        var one = self
        one.threads = 1
        return one
    }

    /// Whether a thread of the attack goes on. Each tries at least once, however late it starts.
    func goesOn(_ tally: Tally) -> Bool {
        (goesOn || tally.count + tally.refused == 0) && tally.count < limit / threads && tally.failure == nil
    }
}

/// Attackers of one kind: strangers, members, users of a service, neighbours.
protocol Attackers: Sendable { init(target: Target, effort: Effort) }

/// An attack of strangers, members or users over the network.
package struct Attack: Equatable, CustomStringConvertible, Sendable {
    package enum Ground: Sendable {
        case node
        /// A rendezvous node with ``Target/users``.
        case relay
        /// A mailbox with ``Target/owners``.
        case mailbox
        /// A node with LAN discovery and a ``Target/neighbourhood``.
        case network
    }

    package let description: String
    package let ground: Ground
    package let run: @Sendable (Target, Effort) -> Tally

    private init<Some: Attackers>(
        _ name: String, on ground: Ground = .node, _ attack: @escaping @Sendable (Some) -> () -> Tally
    ) {
        (description, self.ground) = (name, ground)
        run = { target, effort in attack(Some(target: target, effort: effort))() }
    }

    /// Repeated attempts, each from an address of its own.
    private init<Some: Attackers>(
        _ name: String, each attempt: @escaping @Sendable (Some) -> (Int, inout Tally) throws -> Void
    ) {
        (description, ground) = (name, .node)
        run = { target, effort in
            let some = Some(target: target, effort: effort)
            return effort.attempts { try attempt(some)($0, &$1) }
        }
    }

    /// A member's flood of frames.
    private init(_ name: String, of next: @escaping @Sendable (inout Members.Flooder) -> Frame) {
        (description, ground) = (name, .node)
        run = { target, effort in Members(target: target, effort: effort).flood(next) }
    }

    package static func == (left: Attack, right: Attack) -> Bool { left.description == right.description }

    package static let badTokens = Attack("act 1 with bad tokens", each: Strangers.badToken)
    package static let knocks = Attack("knocks", each: Strangers.knock)
    package static let joins = Attack("join requests", each: Strangers.join)
    package static let wakes = Attack("wake storm", each: Strangers.wake)
    package static let proposals = Attack("proposals of a member") { $0.proposals() }

    package static let allCases: [Attack] = [
        Attack("slowloris, a byte a second", Crowds.trickle), Attack("half-open connections", Crowds.hold),
        Attack("half-open connections in bursts", Crowds.holdInBursts),
        Attack("noise as act 1 behind a known token", each: Strangers.noise), badTokens,
        Attack("act 1 with good tokens", each: Strangers.handshake), Attack("replayed act 1", Strangers.replay),
        Attack("garbage at every stage", each: Strangers.garbage),
        Attack("oversize and empty frames", each: Strangers.frames), knocks,
        Attack("invitations", each: Strangers.invitations),
        Attack("invitations over links that stay open", Strangers.openInvitations), joins, wakes, proposals,
        Attack("forged frames of a member") { $0.forgeries() },
        Attack("knocks of a member, forged", Members.forgedKnocks), Attack("contents of a member") { $0.contents() },
        Attack("inflation bombs of a member") { $0.bombs() },
        Attack("receipts of a member for unknown messages") { $0.receipts() },
        Attack("garbage on the control socket", each: Strangers.control),
        Attack("relay requests", each: Strangers.relay),
        Attack("relay user: streams to itself", on: .relay, RelayUsers.loops),
        Attack("relay user: a byte at a time", on: .relay, RelayUsers.pieces),
        Attack("relay user: never reads", on: .relay, RelayUsers.deaf),
        Attack("relay user: reserves and leaves", on: .relay, RelayUsers.moves),
        Attack("relay user: labels", on: .relay, RelayUsers.labels),
        Attack("relay user: look-ups", on: .relay, RelayUsers.questions),
        Attack("mailbox: boxes are filled", on: .mailbox, MailboxUsers.flood),
        Attack("mailbox: claims, lists and purges", on: .mailbox, MailboxUsers.claims),
        Attack("mailbox: guessed tags", on: .mailbox, MailboxUsers.guesses),
        Attack("LAN: garbage", on: .network, Neighbours.garbage),
        Attack("LAN: announcements of strangers", on: .network, Neighbours.strangers),
        Attack("LAN: an announcement replayed", on: .network, Neighbours.replays),
        Attack("UDP: garbage and bad tokens", Datagrams.garbage), Attack("UDP: punches", Datagrams.punches),
        Attack("UDP: knocks", Datagrams.knocks), Attack("UDP: act 1 with good tokens", Datagrams.dials),
        Attack("UDP: noise behind a known token", Datagrams.noise), Attack("UDP: a replayed dial", Datagrams.replays),
        Attack("UDP: where am I", Datagrams.questions), Attack("UDP: whole handshakes", Datagrams.handshakes),
        Attack("UDP: packets that do not open", Datagrams.sealed),
    ]
}

extension Effort {
    /// Attempts with numbers of their own until the effort ends. A thousand refusals in a row are a failure.
    func attempts(_ attempt: @escaping @Sendable (Int, inout Tally) throws -> Void) -> Tally {
        inParallel(threads) { thread, tally in
            var (failures, number) = (0, thread)
            while goesOn(tally) {
                do {
                    try attempt(number, &tally)
                    failures = 0
                } catch {
                    // Refused by the node, or briefly out of ports.
                    tally.refused += 1
                    failures += 1
                    if failures == 1_000 { throw error }
                }
                number += threads
            }
        }
    }

    /// Floods from many sockets of each thread, 64 packets at a time.
    /// - Parameters:
    ///   - isSilent: The node must not answer. Otherwise it must not send more than it gets.
    ///   - send: sends the packets of a number.
    func flood<Sockets: UDPSockets>(
        isSilent: Bool, perSecond rate: Int = .max, from open: @escaping @Sendable (_ thread: Int) throws -> Sockets,
        with send: @escaping @Sendable (_ number: Int, _ index: Int, Sockets) -> Void
    ) -> Tally {
        inParallel(threads) { thread, tally in
            let sockets = try open(thread)
            let start = ContinuousClock.now
            while goesOn(tally) {
                let ahead = Double(tally.count * threads) / Double(rate) - (.now - start) / .seconds(1)
                if ahead > 0 { usleep(UInt32(ahead * 1_000_000)) }
                for _ in 0..<64 {
                    send(tally.count * threads + thread, tally.count, sockets)
                    tally.count += 1
                }
                sockets.drain()
            }
            usleep(200_000)
            sockets.drain()
            tally.answered = sockets.received
            if sockets.sentByteCount == 0 { tally.failure = "nothing was sent" }
            if sockets.receivedByteCount > (isSilent ? 0 : sockets.sentByteCount) {
                tally.failure = "\(sockets.receivedByteCount) bytes for \(sockets.sentByteCount)"
            }
        }
    }
}

/// Runs `body` on threads of low priority, so that the node has the processors first. An error ends its thread's part.
func inParallel(_ count: Int, _ body: @escaping @Sendable (_ thread: Int, inout Tally) throws -> Void) -> Tally {
    let parts = (0..<count).map { thread in
        Background {
            // Applies to this thread only.
            _ = nice(10)
            var tally = Tally()
            do { try body(thread, &tally) } catch { tally.failure = "\(error)" }
            return tally
        }
    }
    return parts.reduce(Tally()) { $0 + $1.wait() }
}

/// A thread that computes a value.
package final class Background<Value: Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)
    private let done = DispatchSemaphore(value: 0)

    package init(_ body: @escaping @Sendable () -> Value) {
        Thread.detachNewThread { [self] in
            let made = body()
            value.withLock { $0 = made }
            done.signal()
        }
    }

    package func wait() -> Value {
        done.wait()
        return value.withLock { $0! }
    }
}
