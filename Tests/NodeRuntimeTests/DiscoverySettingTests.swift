import NodeRuntime
import Testing

@Suite("The setting `discover`") struct DiscoverySettingTests {
    @Test(
        "each value is read back as written",
        arguments: ["off", "lan", "lan:eth0", "lan:eth0,wlan0", "lan:br-1a2b.7@x"]) func roundTrip(text: String)
    { #expect(DiscoverySetting(text)?.description == text) }

    @Test(
        "any other value is refused",
        arguments: [
            "", "on", "LAN", "wan", "lan:", "lan:,", "lan:a,", "lan:a b", "lan:a/b", "lan:a:b", "lan:0123456789abcdef",
            "lan eth0", "lan:é",
        ]) func refusals(text: String)
    { #expect(DiscoverySetting(text) == nil) }
}
