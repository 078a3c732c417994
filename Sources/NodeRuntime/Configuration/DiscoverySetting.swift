/// LAN discovery of peers: `off`, `lan`, or `lan:` and interface names.
package enum DiscoverySetting: Hashable, Sendable, CustomStringConvertible {
    case off
    case lan(interfaces: [String]?)

    package init?(_ text: some StringProtocol) {
        switch text {
        case "off": self = .off
        case "lan": self = .lan(interfaces: nil)
        default:
            guard text.hasPrefix("lan:") else { return nil }
            let names = String(text).dropFirst(4).split(separator: ",", omittingEmptySubsequences: false).map(
                String.init)
            // At most IFNAMSIZ - 1 bytes, and no character that Linux forbids in interface names.
            guard names.allSatisfy({ (1...15).contains($0.utf8.count) && $0.utf8.allSatisfy(Self.isAllowed) }) else {
                return nil
            }
            self = .lan(interfaces: names)
        }
    }

    private static func isAllowed(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte < 0x7f && byte != UInt8(ascii: "/") && byte != UInt8(ascii: ":")
    }

    package var description: String {
        switch self {
        case .off: "off"
        case .lan(nil): "lan"
        case .lan(let names?): "lan:" + names.joined(separator: ",")
        }
    }
}
