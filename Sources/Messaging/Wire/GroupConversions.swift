import Crypto
import FoundationEssentials

extension ProtoMember {
    init(_ member: Member) {
        key = Data(member.key.bytes)
        profile = member.profile ?? ""
        endpoints = member.endpointTexts
        version = member.version
        signature = Data(member.signature.bytes)
    }
}

extension Member {
    /// Does not check the signature.
    init(_ proto: ProtoMember) throws(WireError) {
        guard proto.endpoints.count <= Limits.endpointCount else { throw .tooLong("member.endpoints") }
        self.init(
            key: try publicKey(proto.key, "member.key"),
            profile: try boundedText(proto.profile, Limits.nameByteCount, "member.profile"),
            endpointTexts: proto.endpoints,
            // Leaves room for increments.
            version: min(proto.version, 1 << 62),
            signature: try Messaging.signature(proto.signature, "member.signature"))
    }
}

func members(_ protos: [ProtoMember], _ field: String) throws(WireError) -> [Member] {
    guard protos.count <= Limits.memberCount else { throw .tooLong(field) }
    var members: [Member] = []
    for proto in protos { members.append(try Member(proto)) }
    return members
}

extension ProtoGroupState {
    init(_ state: GroupState) {
        conversation = Data(state.conversation.bytes)
        version = state.version
        membership = state.membership
        name = state.name ?? ""
        locked = state.isLocked
        members = state.members.map { Data($0.bytes) }
        signature = Data(state.signature.bytes)
    }
}

extension GroupState {
    /// Does not check the signature.
    init(_ proto: ProtoGroupState) throws(WireError) {
        guard proto.members.count <= Limits.memberCount else { throw .tooLong("group.members") }
        var members: [PublicKey] = []
        for member in proto.members { members.append(try publicKey(member, "group.members")) }
        let fields = Unsigned(
            conversation: try identifier(proto.conversation, "group.conversation"),
            version: min(proto.version, 1 << 62), membership: min(proto.membership, 1 << 62),
            name: try boundedText(proto.name, Limits.nameByteCount, "group.name"), isLocked: proto.locked,
            members: members)
        self.init(fields, signature: try Messaging.signature(proto.signature, "group.signature"))
    }
}

extension ProtoDeparture {
    init(_ departure: Departure) {
        conversation = Data(departure.conversation.bytes)
        member = Data(departure.member.bytes)
        signature = Data(departure.signature.bytes)
    }
}

extension Departure {
    /// Does not check the signature.
    init(_ proto: ProtoDeparture) throws(WireError) {
        self.init(
            conversation: try identifier(proto.conversation, "departure.conversation"),
            member: try publicKey(proto.member, "departure.member"),
            signature: try Messaging.signature(proto.signature, "departure.signature"))
    }
}

extension ProtoGroupUpdate {
    init(_ update: GroupUpdate) {
        if let known = update.state { state = ProtoGroupState(known) }
        members = update.members.map(ProtoMember.init)
        departures = update.departures.map(ProtoDeparture.init)
    }
}

extension GroupUpdate {
    init(_ proto: ProtoGroupUpdate) throws(WireError) {
        guard proto.departures.count <= Limits.memberCount else { throw .tooLong("group.departures") }
        var departures: [Departure] = []
        for departure in proto.departures { departures.append(try Departure(departure)) }
        self.init(
            state: proto.hasState ? try GroupState(proto.state) : nil,
            members: try Messaging.members(proto.members, "group.members"), departures: departures)
    }
}
