import Control
import Glibc
import Messaging
import NodeRuntime
import Store
import Transport

struct HomeChecks {
    let home: String
    let running: NodeStatus?

    var all: [HealthCheck] {
        var checks = store
        do throws(HomeFileError) {
            let configuration = try NodeConfiguration.load(home: home)
            try configuration.checkHooks(events: HookRunner.events, home: home)
            checks.append(.ok("config", "\(NodeConfiguration.fileName) can be read"))
            checks += hooks(configuration.hooks ?? []) + listen(configuration) + advertise(configuration)
        } catch { checks.append(Self.check("config", error)) }
        do throws(HomeFileError) {
            let count = try PeersFile.load(home: home).peers.count
            checks.append(.ok("peers", "\(PeersFile.fileName) names \(count)"))
        } catch { checks.append(Self.check("peers", error)) }
        return checks + [disk]
    }

    private static func check(_ name: String, _ error: HomeFileError) -> HealthCheck {
        HealthCheck.failed(
            name, "\(error)", error.kind == .symbolicLink ? "replace it by a regular file" : "correct the file")
    }

    // MARK: The store

    private var store: [HealthCheck] {
        let seen: HomeInspection
        do throws(StoreError) { seen = try HomeInspection(home: home) } catch {
            return [HealthCheck.failed("store", "\(error)", error.advice)]
        }
        let protection = seen.protection == .keyFile ? "a key file" : "a passphrase"
        var checks = [
            seen.keystoreCopyCount == 2
                ? HealthCheck.ok("keystore", "both copies can be read; protected by \(protection)")
                : HealthCheck.warning(
                    "keystore", "one of its two copies cannot be read",
                    "check the disk; make new conversations in a new home while this one still opens")
        ]
        checks.append(Self.clock(mark: seen.clockMark, now: wallClock().milliseconds))
        // A running node reports this itself.
        if running == nil {
            checks.append(
                HealthCheck(
                    name: "erasure", state: seen.erasurePromise.erasure == .bestEffort ? .warning : .ok,
                    message: "\(seen.erasurePromise.erasure.rawValue): \(seen.erasurePromise.reason)",
                    hint: seen.erasurePromise.erasure == .bestEffort
                        ? "for more, keep the home on ext4 or xfs, and encrypt swap or turn it off" : nil))
        }
        return checks
    }

    /// Both parameters are in milliseconds since 1970.
    static func clock(mark: Int64?, now: Int64) -> HealthCheck {
        guard let mark else {
            return .warning(
                "clock", "the home's saved clock time cannot be read",
                "check the disk; the node trusts the system clock")
        }
        guard mark - now <= 2 * Milliseconds.minute else {
            let seen = shown(Timestamp(milliseconds: mark), now: Timestamp(milliseconds: now))
            return .failed(
                "clock", "the system clock is behind the latest time that this home has seen, \(seen)",
                "if the system clock is wrong, correct it (timedatectl). If it was ahead at an earlier start, "
                    + "this cannot be undone. Until that time the home's clock advances only while the node runs, "
                    + "and messages live longer. A new home (`mayfly init`) is not affected")
        }
        guard mark == 0 || now - mark <= 366 * Milliseconds.day else {
            return .warning(
                "clock", "by the system clock, the home was last used more than a year ago",
                "check the clock before you start the node: "
                    + "expired data and conversations that are due to explode are destroyed at once")
        }
        return .ok("clock", "not behind the latest time that this home has seen")
    }

    private var disk: HealthCheck {
        var status = statvfs()
        guard statvfs(home, &status) == 0 else { return .warning("space", "the free disk space cannot be determined") }
        let unit = UInt64(status.f_frsize)
        let free = UInt64(status.f_bavail) &* unit
        let needed = min(Limits.freeByteCount, UInt64(status.f_blocks) &* unit / 20)
        guard free >= needed else {
            return .failed(
                "space", "\(Self.size(free)) free, less than \(Self.size(needed))",
                "free some space: until then messages from others are not stored")
        }
        return .ok("space", "\(Self.size(free)) free")
    }

    private static func size(_ byteCount: UInt64) -> String { Words.size(Int64(clamping: byteCount)) }

    // MARK: The configuration

    private func hooks(_ hooks: [NodeConfiguration.Hook]) -> [HealthCheck] {
        hooks.enumerated().map { index, hook in
            if let problem = HookProgram.problem(hook.command[0]) {
                return .failed(
                    "hook", "hooks[\(index)]: \(problem)",
                    "the hook is not started; name an executable file that only you or root can change")
            }
            return .ok("hook", "hooks[\(index)]: \(hook.command[0])")
        }
    }

    private func listen(_ configuration: NodeConfiguration) -> [HealthCheck] {
        if let running {
            let words = running.listen.isEmpty ? "nowhere" : running.listen.joined(separator: " ")
            let state: CheckState = running.listen.isEmpty ? .warning : .ok
            return [HealthCheck(name: "listen", state: state, message: "listens on \(words)")]
        }
        let failures = configuration.listen.map { Self.bindFailure($0) }
        let addresses = ReachableAddresses(configuration, Sockets().interfaces() ?? [])
        let isFound = configuration.discover.map { $0 != "off" } ?? false
        return zip(configuration.listen, failures).map { endpoint, failure in
            guard let failure else { return .ok("listen", "\(endpoint) is free") }
            if failure.isFamilyMissing, failures.contains(where: { $0 == nil }) {
                return .ok(
                    "listen", "\(endpoint): the kernel does not have this address family; the node runs without it")
            }
            return .failed(
                "listen", "\(endpoint): \(failure.reason)",
                "choose another in \(NodeConfiguration.fileName) or with `mayfly run --listen`")
        }
            + (addresses.told + addresses.untold.map(\.endpoint)).prefix(1).map { _ in
                NetworkView.addressesCheck(addresses, isFound: isFound)
            }
    }

    private struct BindFailure: Hashable {
        let reason: String
        /// The kernel lacks the address family of this wildcard.
        var isFamilyMissing = false

        init(_ code: Int32, _ endpoint: Messaging.Endpoint) {
            reason = String(cString: strerror(code)).lowercased()
            isFamilyMissing = [EAFNOSUPPORT, EADDRNOTAVAIL].contains(code) && endpoint.wildcardIsIPv4 != nil
        }

        init(reason: String) { self.reason = reason }
    }

    private static func bindFailure(_ endpoint: Messaging.Endpoint) -> BindFailure? {
        var hints = addrinfo()
        hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(endpoint.host, String(endpoint.port), &hints, &found) == 0, let found else {
            return BindFailure(reason: "not an IP address")
        }
        defer { freeaddrinfo(found) }
        let descriptor = socket(found.pointee.ai_family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return BindFailure(errno, endpoint) }
        defer { close(descriptor) }
        var yes: Int32 = 1
        if found.pointee.ai_family == AF_INET6 {
            setsockopt(descriptor, Int32(IPPROTO_IPV6), IPV6_V6ONLY, &yes, socklen_t(MemoryLayout<Int32>.size))
        }
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        guard bind(descriptor, found.pointee.ai_addr, found.pointee.ai_addrlen) == 0, Glibc.listen(descriptor, 1) == 0
        else { return BindFailure(errno, endpoint) }
        return nil
    }

    private func advertise(_ configuration: NodeConfiguration) -> [HealthCheck] {
        let isExplicit = !configuration.advertised.isEmpty
        // A running node may have other endpoints from its command line.
        let listening = running.map { $0.listen.compactMap { Endpoint($0) } } ?? configuration.listen
        let told = isExplicit ? configuration.advertised : listening
        func warning(_ message: String, _ hint: String) -> [HealthCheck] {
            [HealthCheck.warning("advertise", message, hint)]
        }
        let hint = "name the outer address as `advertise` in \(NodeConfiguration.fileName)"
        if isExplicit, let wrong = told.first(where: { $0.host == "0.0.0.0" || $0.host == "::" || $0.port == 0 }) {
            return warning("\(wrong) is not an address that others can dial", hint)
        }
        if told.allSatisfy({ $0.host.hasPrefix("127.") || $0.host == "::1" || $0.host == "localhost" }) {
            return warning("only this machine can reach the node", hint)
        }
        let isMoving = configuration.listen.allSatisfy { $0.port == 0 }
        if !isExplicit, isMoving, listening.map(\.host) == configuration.listen.map(\.host) {
            return warning("the port changes at each start, so others lose this node", "choose a fixed port")
        }
        // The `addresses` check covers the listening endpoints.
        guard isExplicit else { return [] }
        let words = told.map { "\($0)" }.joined(separator: " ")
        return [HealthCheck.ok("advertise", "others are told \(words)")]
    }
}
