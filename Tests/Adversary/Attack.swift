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
        address: NodeAddress, card: ContactCard, invite: String, crowded: String, sleeping: [String], socket: String,
        day: UInt32
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
        var sum = Tally()
        sum.count = left.count + right.count
        sum.answered = left.answered + right.answered
        sum.refused = left.refused + right.refused
        sum.held = left.held + right.held
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

    /// Whether a thread of the attack goes on. Each tries at least once, however late it starts.
    func goesOn(_ tally: Tally) -> Bool {
        (goesOn || tally.count + tally.refused == 0) && tally.count < limit / threads && tally.failure == nil
    }
}

/// Attacks of strangers and members over the network.
package enum Attack: String, CaseIterable, Sendable {
    case slowloris = "slowloris, a byte a second"
    case halfOpen = "half-open connections"
    case halfOpenBursts = "half-open connections in bursts"
    case noise = "noise as act 1 behind a known token"
    case badTokens = "act 1 with bad tokens"
    case goodTokens = "act 1 with good tokens"
    case replays = "replayed act 1"
    case garbage = "garbage at every stage"
    case frames = "oversize and empty frames"
    case knocks = "knocks"
    case invitations = "invitations"
    case openInvitations = "invitations over links that stay open"
    case joins = "join requests"
    case wakes = "wake storm"
    case proposals = "proposals of a member"
    case forgeries = "forged frames of a member"
    case forgedKnocks = "knocks of a member, forged"
    case contents = "contents of a member"
    case bombs = "inflation bombs of a member"
    case receipts = "receipts of a member for unknown messages"
    case control = "garbage on the control socket"
    case relays = "relay requests"
    case relayLoops = "relay user: streams to itself"
    case relayPieces = "relay user: a byte at a time"
    case relayDeaf = "relay user: never reads"
    case relayMoves = "relay user: reserves and leaves"
    case relayLabels = "relay user: labels"
    case relayQuestions = "relay user: look-ups"
    case mailboxFlood = "mailbox: boxes are filled"
    case mailboxClaims = "mailbox: claims, lists and purges"
    case mailboxGuesses = "mailbox: guessed tags"
    case lanGarbage = "LAN: garbage"
    case lanStrangers = "LAN: announcements of strangers"
    case lanReplays = "LAN: an announcement replayed"
    case datagramGarbage = "UDP: garbage and bad tokens"
    case datagramPunches = "UDP: punches"
    case datagramKnocks = "UDP: knocks"
    case datagramDials = "UDP: act 1 with good tokens"
    case datagramNoise = "UDP: noise behind a known token"
    case datagramReplays = "UDP: a replayed dial"
    case datagramQuestions = "UDP: where am I"
    case datagramHandshakes = "UDP: whole handshakes"
    case datagramSealed = "UDP: packets that do not open"

    package enum Ground: Sendable {
        case node
        /// A rendezvous node with ``Target/users``.
        case relay
        /// A mailbox with ``Target/owners``.
        case mailbox
        /// A node with LAN discovery and a ``Target/neighbourhood``.
        case network
    }

    package var ground: Ground {
        switch self {
        case .relayLoops, .relayPieces, .relayDeaf, .relayMoves, .relayLabels, .relayQuestions: .relay
        case .lanGarbage, .lanStrangers, .lanReplays: .network
        case .mailboxFlood, .mailboxClaims, .mailboxGuesses: .mailbox
        default: .node
        }
    }

    package func run(_ target: Target, _ effort: Effort) -> Tally {
        switch self {
        case .slowloris: inParallel(1) { _, tally in tally = Crowd(target, effort).trickle() }
        case .halfOpen: inParallel(1) { _, tally in tally = Crowd(target, effort).hold(inBursts: false) }
        case .halfOpenBursts: inParallel(1) { _, tally in tally = Crowd(target, effort).hold(inBursts: true) }
        case .noise: stranger(target, effort, Strangers.noise)
        case .badTokens: stranger(target, effort, Strangers.badToken)
        case .goodTokens: stranger(target, effort, Strangers.handshake)
        case .replays: Strangers.replay(target, effort)
        case .garbage: stranger(target, effort, Strangers.garbage)
        case .frames: stranger(target, effort, Strangers.frames)
        case .knocks: stranger(target, effort, Strangers.knock)
        case .invitations: stranger(target, effort, Strangers.invitations)
        case .openInvitations: Strangers.openInvitations(target, effort)
        case .joins: stranger(target, effort, Strangers.join)
        case .wakes: stranger(target, effort, Strangers.wake)
        case .proposals: Members(target: target, effort: effort).flood { $0.proposals() }
        case .forgeries: Members(target: target, effort: effort).flood { $0.forgeries() }
        case .forgedKnocks: Members(target: target, effort: effort).forgedKnocks()
        case .contents: Members(target: target, effort: effort).flood { $0.contents() }
        case .bombs: Members(target: target, effort: effort).flood { $0.bombs() }
        case .receipts: Members(target: target, effort: effort).flood { $0.receipts() }
        case .control: ControlGarbage(target: target, effort: effort).run()
        case .relays: stranger(target, effort, Strangers.relay)
        case .relayLoops: RelayUsers(target: target, effort: effort).loops()
        case .relayPieces: RelayUsers(target: target, effort: effort).pieces()
        case .relayDeaf: RelayUsers(target: target, effort: effort).deaf()
        case .relayMoves: RelayUsers(target: target, effort: effort).moves()
        case .relayLabels: RelayUsers(target: target, effort: effort).labels()
        case .relayQuestions: RelayUsers(target: target, effort: effort).questions()
        case .mailboxFlood: MailboxUsers(target: target, effort: effort).flood()
        case .mailboxClaims: MailboxUsers(target: target, effort: effort).claims()
        case .mailboxGuesses: MailboxUsers(target: target, effort: effort).guesses()
        case .lanGarbage: Neighbours(target: target, effort: effort).garbage()
        case .lanStrangers: Neighbours(target: target, effort: effort).strangers()
        case .lanReplays: Neighbours(target: target, effort: effort).replays()
        case .datagramGarbage: Datagrams(target: target, effort: effort).garbage()
        case .datagramPunches: Datagrams(target: target, effort: effort).punches()
        case .datagramKnocks: Datagrams(target: target, effort: effort).knocks()
        case .datagramDials: Datagrams(target: target, effort: effort).dials()
        case .datagramNoise: Datagrams(target: target, effort: effort).noise()
        case .datagramReplays: Datagrams(target: target, effort: effort).replays()
        case .datagramQuestions: Datagrams(target: target, effort: effort).questions()
        case .datagramHandshakes: Datagrams(target: target, effort: effort).handshakes()
        case .datagramSealed: Datagrams(target: target, effort: effort).sealed()
        }
    }

    /// Repeated attempts, each from an address of its own.
    private func stranger(
        _ target: Target, _ effort: Effort, _ attempt: @escaping @Sendable (Target, Int, inout Tally) throws -> Void
    ) -> Tally {
        inParallel(effort.threads) { thread, tally in
            var (failures, number) = (0, thread)
            while effort.goesOn(tally) {
                do {
                    try attempt(target, number, &tally)
                    failures = 0
                } catch {
                    // Refused by the node, or briefly out of ports.
                    tally.refused += 1
                    failures += 1
                    if failures == 1_000 { throw error }
                }
                number += effort.threads
            }
        }
    }
}

/// Runs `body` on threads of low priority, so that the node has the processors first. An error ends its thread's part.
func inParallel(_ count: Int, _ body: @escaping @Sendable (_ thread: Int, inout Tally) throws -> Void) -> Tally {
    let sum = Mutex(Tally())
    let done = DispatchSemaphore(value: 0)
    for thread in 0..<count {
        Thread.detachNewThread {
            // Applies to this thread only.
            _ = nice(10)
            var tally = Tally()
            do { try body(thread, &tally) } catch { tally.failure = "\(error)" }
            let part = tally
            sum.withLock { $0 = $0 + part }
            done.signal()
        }
    }
    for _ in 0..<count { done.wait() }
    return sum.withLock { $0 }
}
