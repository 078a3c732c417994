@testable import Transport

let gateway = IPAddress(192, 168, 1, 1)
let local = IPAddress(192, 168, 1, 2)
let outer = IPAddress(5, 5, 5, 2)
let here = MappingPlace(gateway: gateway, interface: 2, local: local, port: 7_440, hasDatagrams: true)
let elsewhere = MappingPlace(
    gateway: IPAddress(10, 0, 0, 1), interface: 3, local: local, port: 7_440, hasDatagrams: true)
let local6 = IPAddress(high: 0x2a00_0001_0000_0000, low: 2)
let here6 = MappingPlace(
    gateway: IPAddress(high: 0xfe80_0000_0000_0000, low: 1), interface: 2, local: local6, port: 7_440,
    hasDatagrams: false)

func grant(_ address: IPAddress = outer, tcp: UInt16 = 7_440, udp: UInt16? = 7_440, lifetime: UInt32 = 3_600)
    -> MappingGrant
{ MappingGrant(outer: address, tcp: tcp, udp: udp, lifetime: lifetime) }
