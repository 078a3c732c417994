import Cryptography
import Messaging
import TestSupport
import Testing

/// The term `mailbox` of an agreement (Lifetime.md, "Terms").
@Suite("Mailbox consent") struct MailboxConsentTests {
    private static let memory = LifetimeTerms(.ephemeral, mailbox: .ram)
    private static let disk = LifetimeTerms(.oneDay, mailbox: .disk)

    @Test func `terms without a lifetime cannot allow a mailbox on disk`() {
        #expect(Self.memory.isValid && !LifetimeTerms(.ephemeral, mailbox: .disk).isValid)
        #expect(!LifetimeTerms(.ephemeral, unopened: .hour, mailbox: .ram).isValid)
        #expect(!LifetimeTerms(.ephemeral, timer: .read, mailbox: .ram).isValid)
        #expect(!LifetimeTerms(.ephemeral, attachment: .oneDay, mailbox: .disk).isValid)
        #expect(!LifetimeTerms(.oneDay, attachment: .ephemeral, mailbox: .disk).isValid)
        #expect(LifetimeTerms(.ephemeral, attachment: .oneDay, mailbox: .ram).isValid)
        #expect(!Self.memory.keepsSomething && Self.memory.allowsSomething)
        for lifetime in Lifetime.allCases where lifetime != .ephemeral {
            for mailbox in MailboxConsent.allCases { #expect(LifetimeTerms(lifetime, mailbox: mailbox).isValid) }
        }
    }

    @Test func `the display name of terms names the mailbox`() {
        #expect(Self.disk.displayName == "1 Day (mailbox on disk)")
        #expect(LifetimeTerms(.oneDay, mailbox: .ram).displayName == "1 Day (mailbox in memory)")
        #expect(LifetimeTerms(.oneDay).displayName == "1 Day")
        let all = LifetimeTerms(.oneDay, attachment: .oneHour, timer: .read, mailbox: .ram)
        #expect(all.displayName == "1 Day (attachments 1 Hour, from reading, mailbox in memory)")
    }

    @Test func `a policy accepts no wider mailbox than it names`() {
        #expect(MailboxConsent.allCases.sorted() == [.no, .ram, .disk])
        #expect(LifetimePolicy.acceptUpTo(.oneDay, mailbox: .disk).text == "accept-up-to:1d:disk")
        for allowed in MailboxConsent.allCases {
            for proposed in MailboxConsent.allCases {
                let policy = LifetimePolicy.acceptUpTo(.sevenDays, mailbox: allowed)
                #expect(policy.accepts(LifetimeTerms(.oneDay, mailbox: proposed)) == (proposed <= allowed))
                #expect(!policy.accepts(LifetimeTerms(.thirtyDays, mailbox: proposed)))
                #expect(LifetimePolicy(policy.text) == policy)
            }
        }
        #expect(!LifetimePolicy.acceptUpTo(.thirtyDays).accepts(Self.memory))
        #expect(LifetimePolicy.acceptUpTo(.ephemeral, mailbox: .ram).accepts(Self.memory))
        #expect(!LifetimePolicy.ask.accepts(Self.memory) && !LifetimePolicy.refuse.accepts(Self.memory))
    }

    @Test func `a mailbox without a lifetime is proposed, accepted and in force like other terms`() {
        var talk = Council(2)
        talk.policies[1] = .acceptUpTo(.thirtyDays)
        #expect(talk.propose(Self.memory, 0) == nil)
        talk.deliverAll()
        // The standing policy allows no mailbox, so the user is asked.
        #expect(talk.pending(1)?.isOurs == false && talk.agreements == [nil, nil] && talk.accept(1) == nil)
        talk.deliverAll()
        #expect(talk.isAgreed && talk.machines.allSatisfy { $0.terms == Self.memory })
        #expect(talk.propose(Self.memory, 1) == .alreadyAgreed(.ephemeral))
        // Terms without a mailbox are another agreement, which ends this one.
        talk.policies[1] = .ask
        #expect(talk.propose(.ephemeral, 0) == nil)
        talk.deliverAll()
        talk.accept(1)
        talk.deliverAll()
        #expect(talk.isAgreed && talk.machines.allSatisfy { $0.terms == .ephemeral })
    }

    @Test func `crossing proposals that differ in the mailbox are no agreement`() {
        var talk = Council(2)
        talk.propose(.oneDay, 0)
        talk.propose(Self.disk, 1)
        talk.deliverAll()
        #expect(talk.agreements == [nil, nil] && talk.pending(0)?.proposal.id == talk.pending(1)?.proposal.id)
    }

    @Test(arguments: [LifetimeTerms(.ephemeral, mailbox: .ram), LifetimeTerms(.oneDay, mailbox: .disk)])
    func `an agreement with a mailbox is renewed only by policies that name the mailbox`(terms: LifetimeTerms) throws {
        let naming = LifetimePolicy.acceptUpTo(terms.lifetime, mailbox: terms.mailbox)
        for policies in [[naming, naming], [naming, .acceptUpTo(.thirtyDays)], [.acceptUpTo(.thirtyDays), naming]] {
            var talk = Council(2)
            talk.agree(on: terms)
            #expect(talk.machines[0].terms == terms)
            talk.policies = policies
            talk.session(resets: [true, false])
            talk.deliverAll()
            let isRenewed = policies == [naming, naming]
            #expect(talk.isAgreed && talk.machines[0].terms == (isRenewed ? terms : .ephemeral), "\(policies)")
            #expect(talk.pending(0) == nil && talk.pending(1) == nil)
        }
    }

    @Test func `system messages describe the mailbox that members have agreed on`() throws {
        var pair = try Pair.joined()
        var shown: [String] = []
        for terms in [Self.memory, .oneDay, .sevenDays, Self.disk, Self.memory, .ephemeral] {
            pair.now = pair.now + Milliseconds.minute
            pair.agree(on: terms)
            let notes = (0..<2).map { node in
                pair.archive[node].values.map(\.message.content).filter { $0.type == .systemMessage }.max {
                    $0.sentAt < $1.sentAt
                }?.displayText
            }
            #expect(notes[0] == notes[1])
            shown.append(try #require(notes[0]))
        }
        #expect(
            shown == [
                "Messages are not kept; a mailbox may hold them in memory", "Messages will be deleted after 1 Day",
                "Changed to 7 Days", "Changed to 1 Day (mailbox on disk)",
                "Messages are no longer kept; a mailbox may hold them in memory",
                "A mailbox may no longer hold messages",
            ])
    }
}
