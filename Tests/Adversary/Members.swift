import Cryptography
import Glibc
import Messaging
import Transport

/// Floods by a member: frames as fast as the link accepts them, over a new link whenever it is cut.
struct Members: Attackers {
    let target: Target
    let effort: Effort

    struct Flooder {
        let member: HostileMember
        fileprivate(set) var link: HostileLink
        private var number = 0
        private var random = SystemRandomness()
        private let announced: MessageID
        private let bomb: [UInt8]

        fileprivate init(_ member: HostileMember) {
            self.member = member
            link = member.link
            announced = .make(by: member.identity.publicKey, in: member.conversation, &random)
            bomb = Deflate.compress([UInt8](repeating: 0, count: 1 << 20), level: 9)
        }

        private var now: Timestamp { Timestamp(milliseconds: Int64(time(nil)) * 1_000) }

        mutating func proposals() -> Frame {
            let proposal = member.proposal(epoch: UInt64(number), isSigned: number <= 3, at: now)
            return .lifetime(.proposal(proposal))
        }

        mutating func forgeries() -> Frame {
            if number % 2 == 0 {
                return .memberLeft(
                    Departure(
                        conversation: member.conversation, member: member.creator,
                        signature: member.welcome.group.signature))
            }
            var state = member.welcome.group
            state.version += UInt64(number)
            state.name = "mine"
            let signed = state.signed(by: member.identity, &random)
            return .group(GroupUpdate(state: signed, members: [], departures: []))
        }

        mutating func contents() -> Frame { .content(member.text(String(repeating: "x", count: 1_000)), age: 0) }

        /// A receipt with the maximum number of unknown message ids.
        mutating func receipts() -> Frame {
            .receipt(Receipt(.read, (0..<Limits.receiptCount).map { _ in .random(&random) }))
        }

        /// A chunk that inflates to a mebibyte, for a requested file and for an unknown one.
        mutating func bombs() -> Frame {
            if number == 1 {
                var content = member.text("", id: announced)
                content.type = .attachment
                content.payload = []
                content.body = .attachment(
                    Attachment(name: "f", mediaType: "a/b", byteCount: 1 << 20, hash: randomBytes(32), text: ""))
                return .content(content, age: 0)
            }
            let id: MessageID = number % 2 == 0 ? announced : .random(&random)
            let chunk = AttachmentChunk(message: id, index: number % 40, isDeflated: true, bytes: bomb)
            return .attachmentChunk(chunk)
        }

        fileprivate mutating func seal(_ next: (inout Flooder) -> Frame) throws -> [UInt8] {
            number += 1
            return try link.seal(next(&self))
        }

        fileprivate mutating func dialAgain(_ target: Target, counter: UInt32) -> Bool {
            guard let link = try? member.dialAgain(at: target.address, counter: counter) else { return false }
            self.link = link
            return true
        }
    }

    /// Knocks with notices signed by the member itself: each opens, and costs a signature check.
    func forgedKnocks() -> Tally {
        let (token, notice): (RoutingToken, ExplodeNotice)
        do {
            let member = try target.member()
            var random = SystemRandomness()
            let end = Timestamp(milliseconds: Int64(time(nil)) * 1_000)
            token = member.secret.knock.token(day: target.day)
            notice = ExplodeNotice(genesis: member.welcome.genesis, expiresAt: end, key: member.identity, &random)
        } catch { return inParallel(1) { _, _ in throw error } }
        return effort.attempts { number, tally in
            let connection = try RawConnection(from: Source(number), to: target.address)
            var random = SystemRandomness()
            let sealed = [1] + notice.sealed(&random)
            let length = [UInt8(sealed.count >> 8), UInt8(sealed.count & 0xff)]
            connection.write(HostileLink.preamble(token.bytes, kind: 0x6B) + length + sealed)
            _ = connection.readToEnd(seconds: 5)
            tally.count += 1
        }
    }

    func flood(_ next: @escaping @Sendable (inout Flooder) -> Frame) -> Tally {
        inParallel(1) { _, tally in
            var flooder = Flooder(try target.member())
            var counter: UInt32 = 1
            while effort.alone.goesOn(tally) {
                var bytes: [UInt8] = []
                while bytes.count < 65_536, tally.count < effort.limit {
                    guard let sealed = try? flooder.seal(next) else { break }
                    bytes += sealed
                    tally.count += 1
                }
                flooder.link.connection.drain()
                if flooder.link.connection.write(bytes), !flooder.link.connection.hasEnded { continue }
                // The link was cut: the node decides how often it may reopen.
                tally.refused += 1
                while effort.goesOn {
                    if flooder.dialAgain(target, counter: counter) {
                        counter += 1
                        break
                    }
                    usleep(100_000)
                }
            }
        }
    }
}
