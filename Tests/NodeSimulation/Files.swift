import Crypto
import Messaging
import NIOCore
import NodeRuntime

/// Files that users send: a member that reports a file as whole must have every byte of it.
extension NodeSimulation {
    /// Contents of file `number`, partly compressible.
    static func bytes(ofFile number: Int, count: Int) -> [UInt8] {
        var state = UInt64(truncatingIfNeeded: number) &* 0x9e37_79b9_7f4a_7c15 | 1
        return (0..<count).map { index in
            if index & 0xfff < 0x800 { return UInt8(truncatingIfNeeded: number) }
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return UInt8(truncatingIfNeeded: state >> 56)
        }
    }

    func sendFile(_ machine: Machine, _ conversation: Listed) {
        let number = nextText
        nextText += 1
        let bytes = Self.bytes(ofFile: number, count: Int(roll(chance(80) ? 40_000 : 400_000)))
        let isGivenUp = chance(10)
        command(machine, isGivenUp ? "files given up" : "files") { node in
            let upload = try node.beginUpload(
                conversation.text, name: "f\(number)", byteCount: Int64(bytes.count), text: "", replyTo: nil)
            _ = try node.append(ByteBuffer(bytes: bytes), to: upload)
            if isGivenUp { return node.cancelUpload(upload) }
            _ = try node.commitUpload(upload)
        }
    }

    /// Checks a file shown to a reader: a whole file equals the sent one.
    func look(at read: Node.ReadMessage, of conversation: Listed, _ machine: Machine, _ node: isolated Node) {
        guard let attachment = read.message.content.attachment, let number = Int(attachment.name.dropFirst()),
            attachment.name.first == "f", !machine.diskHasFailed,
            // A hostile sender may name a file freely.
            read.message.sender.map({ !isHostile($0) }) ?? true,
            // The sender of a file in memory drops it after delivery.
            read.message.sender != nil || read.isStored
        else { return }
        let file: Node.SavedAttachment
        do throws(NodeError) {
            file = try node.attachment(read.message.content.id.description, in: conversation.text)
        } catch { return count("files under way") }
        var found: [UInt8] = []
        do throws(NodeError) {
            for chunk in 0..<attachment.chunkCount { found += try node.read(file, from: chunk, count: 1) }
        } catch {
            // The file may expire between message and last chunk.
            if let end = read.message.expiresAt, end <= node.currentTime + 1_000 { return }
            return violation("I1 machine \(machine.index) says that \(attachment.name) is whole: \(error)")
        }
        count(read.message.sender == nil ? "own files read" : "files read")
        if found != Self.bytes(ofFile: number, count: found.count) || found.count != Int(attachment.byteCount) {
            violation("I1 machine \(machine.index) shows \(attachment.name) otherwise than it was sent")
        }
    }
}
