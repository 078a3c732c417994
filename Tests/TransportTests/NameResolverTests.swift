import Dispatch
import NIOCore
import NIOPosix
import Synchronization
import Testing
import Transport

@Suite("Names") struct NameResolverTests {
    private final class Names: Sendable {
        private let asked = Mutex<[String]>([])
        private let time = Mutex(NIODeadline.uptimeNanoseconds(1))
        private let gate = DispatchSemaphore(value: 0)

        var questions: [String] { asked.withLock { $0 } }
        func wait(_ amount: TimeAmount) { time.withLock { $0 = $0 + amount } }
        func release(_ count: Int) { for _ in 0..<count { gate.signal() } }

        func resolver() -> NameResolver {
            NameResolver { [self] in
                time.withLock { $0 }
            } lookUp: { [self] name in
                asked.withLock { $0.append(name) }
                if name.hasPrefix("slow") {
                    gate.wait()
                    wait(.seconds(10))
                }
                return name.contains("nobody") ? [] : ["127.0.0.1", "::1"]
            }
        }
    }

    private static let both = ["127.0.0.1", "::1"]

    @Test func `Slow names do not delay fast ones, and fail beyond a limit`() async throws {
        let names = Names()
        let resolver = names.resolver()
        let loop = NIOSingletons.posixEventLoopGroup.next()
        #expect(try await resolver.addresses(of: "known.example", on: loop).get() == Self.both)
        let waiting = (0..<NameResolver.lookUpCount).map { resolver.addresses(of: "slow\($0).example", on: loop) }
        #expect(try await resolver.addresses(of: "one.more.example", on: loop).get() == [], "as many as may be wait")
        for _ in 0..<8 { #expect(try await resolver.addresses(of: "Known.example", on: loop).get() == Self.both) }
        names.release(waiting.count)
        for one in waiting { #expect(try await one.get() == Self.both) }
    }

    @Test func `Concurrent questions for a name share one lookup, and a slow answer is cached`() async throws {
        let names = Names()
        let resolver = names.resolver()
        let loop = NIOSingletons.posixEventLoopGroup.next()
        let asked = (0..<5).map { _ in resolver.addresses(of: "slow.example", on: loop) }
        names.release(1)
        for one in asked { #expect(try await one.get() == Self.both) }
        #expect(try await resolver.addresses(of: "slow.example", on: loop).get() == Self.both)
        #expect(names.questions == ["slow.example"])
        names.wait(.minutes(5))
        let again = resolver.addresses(of: "slow.example", on: loop)
        names.release(1)
        #expect(try await again.get() == Self.both)
        #expect(names.questions.count == 2)
        // A slow failure is cached for a minute.
        let nobody = resolver.addresses(of: "slow.nobody.example", on: loop)
        names.release(1)
        #expect(try await nobody.get() == [])
        #expect(try await resolver.addresses(of: "slow.nobody.example", on: loop).get() == [])
        names.wait(.minutes(1))
        let later = resolver.addresses(of: "slow.nobody.example", on: loop)
        names.release(1)
        #expect(try await later.get() == [])
        #expect(names.questions.count == 4)
        // A fast failure is not cached.
        for _ in 0..<2 { #expect(try await resolver.addresses(of: "nobody.example", on: loop).get() == []) }
        #expect(names.questions.count == 6)
    }
}
