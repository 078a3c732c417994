import Cryptography
import Glibc
import Messaging
import Transport

/// Floods by a member: frames as fast as the link accepts them, over a new link whenever it is cut.
struct Members: Sendable {
    let target: Target
    let effort: Effort

    struct Flooder {
        let member: HostileMember
        fileprivate(set) var link: HostileLink
        fileprivate var number = 0
        private let announced: MessageID
        private let bomb: [UInt8]

        fileprivate init(_ member: HostileMember) {
            self.member = member
            link = member.link
            var random = SystemRandomness()
            announced = .make(by: member.identity.publicKey, in: member.conversation, &random)
            bomb = Deflate.compress([UInt8](repeating: 0, count: 1 << 20), level: 9)
        }

        private var now: Timestamp { Timestamp(milliseconds: Int64(time(nil)) * 1_000) }

        mutating func proposals() -> Frame {
            number += 1
            let proposal = member.proposal(epoch: UInt64(number), isSigned: number <= 3, at: now)
            return .lifetime(.proposal(proposal))
        }

        mutating func forgeries() -> Frame {
            number += 1
            var random = SystemRandomness()
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

        mutating func contents() -> Frame {
            number += 1
            return .content(member.text(String(repeating: "x", count: 1_000)), age: 0)
        }

        /// A receipt with the maximum number of unknown message ids.
        mutating func receipts() -> Frame {
            number += 1
            var random = SystemRandomness()
            return .receipt(Receipt(.read, (0..<Limits.receiptCount).map { _ in .random(&random) }))
        }

        /// A chunk that inflates to a mebibyte, for a requested file and for an unknown one.
        mutating func bombs() -> Frame {
            number += 1
            if number == 1 {
                var content = member.text("", id: announced)
                content.type = .attachment
                content.payload = []
                content.body = .attachment(
                    Attachment(name: "f", mediaType: "a/b", byteCount: 1 << 20, hash: randomBytes(32), text: ""))
                return .content(content, age: 0)
            }
            var random = SystemRandomness()
            let id: MessageID = number % 2 == 0 ? announced : .random(&random)
            let chunk = AttachmentChunk(message: id, index: number % 40, isDeflated: true, bytes: bomb)
            return .attachmentChunk(chunk)
        }

        fileprivate mutating func dialAgain(_ target: Target, counter: UInt32) -> Bool {
            guard let link = try? member.dialAgain(at: target.address, counter: counter) else { return false }
            self.link = link
            return true
        }
    }

    /// Knocks with notices signed by the member itself: each opens, and costs a signature check.
    func forgedKnocks() -> Tally {
        inParallel(effort.threads) { thread, tally in
            let member = try target.member()
            var random = SystemRandomness()
            let token = member.secret.knock.token(day: target.day)
            let end = Timestamp(milliseconds: Int64(time(nil)) * 1_000)
            let notice = ExplodeNotice(genesis: member.welcome.genesis, expiresAt: end, key: member.identity, &random)
            var number = thread
            while effort.goesOn(tally) {
                number += effort.threads
                guard let connection = try? RawConnection(from: Source(number), to: target.address) else {
                    tally.refused += 1
                    continue
                }
                let sealed = [1] + notice.sealed(&random)
                let length = [UInt8(sealed.count >> 8), UInt8(sealed.count & 0xff)]
                connection.write(HostileLink.preamble(token.bytes, kind: 0x6B) + length + sealed)
                _ = connection.readToEnd(seconds: 5)
                tally.count += 1
            }
        }
    }

    func flood(_ next: @escaping @Sendable (inout Flooder) -> Frame) -> Tally {
        inParallel(1) { _, tally in
            var flooder = Flooder(try target.member())
            var counter: UInt32 = 1
            while effort.goesOn || tally.count == 0, tally.count < effort.limit {
                var bytes: [UInt8] = []
                while bytes.count < 65_536, tally.count < effort.limit {
                    guard let sealed = try? flooder.link.seal(next(&flooder)) else { break }
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

/// Garbage on the control socket, by a process that may open it.
struct ControlGarbage: Sendable {
    let target: Target
    let effort: Effort

    func run() -> Tally {
        inParallel(effort.threads) { thread, tally in
            while effort.goesOn(tally) {
                attempt(tally.count * effort.threads + thread)
                tally.count += 1
            }
        }
    }

    private func attempt(_ number: Int) {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: target.socket.utf8.prefix(107)) }
        let isOpen = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
            }
        }
        guard isOpen else { return }
        let bytes: [UInt8] =
            switch number % 5 {
            case 0: randomBytes(1 + number % 5_000)
            case 1: [UInt8](repeating: 0x7B, count: 2 << 20)
            case 2: [UInt8](repeating: 0x5B, count: 100_000) + [0x0A]
            case 3: Array(#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"conversation":null}}"#.utf8) + [0x0A]
            default:
                Array(#"{"jsonrpc":"2.0","id":1e999,"method":"status","params":[[[]]]}"#.utf8) + [0x0A, 0x00, 0x0A]
            }
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes {
                send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return }
            sent += count
        }
        shutdown(descriptor, Int32(SHUT_WR))
        var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        poll(&polled, 1, 1_000)
    }
}
