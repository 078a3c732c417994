import Glibc
import NIOCore

extension ControlClient {
    /// Copies lines from `input` to the node and answers to `output`, until the node closes.
    ///
    /// After the end of `input` the node still answers the outstanding requests. Backpressure: while the node's socket
    /// is full, `input` is not read. Answers are read meanwhile, because the node stops reading at too many unread
    /// answers.
    /// - Throws: `noNode` when the node closes with answers outstanding, or while `input` or a subscription is open;
    ///   ``doesNotAnswer`` when it hangs.
    package func pump(from input: Int32, to output: Int32) throws(ControlError) {
        var owed = OwedAnswers()
        var inputIsOpen = true
        var nodeReads = true
        while true {
            let wantsInput = inputIsOpen && nodeReads && unsent.isEmpty
            var polled = [
                pollfd(fd: socket.number, events: Int16(unsent.isEmpty ? POLLIN : POLLIN | POLLOUT), revents: 0),
                pollfd(fd: wantsInput ? input : -1, events: Int16(POLLIN), revents: 0),
                pollfd(fd: output, events: 0, revents: 0),
            ]
            let count = poll(&polled, nfds_t(polled.count), Self.pollTime(left: quiet))
            guard count > 0 else {
                if count == 0 { try checkAnswers() }
                if count == 0 || errno == EINTR { continue }
                throw .system("cannot wait for the node")
            }
            if polled[2].revents & Int16(POLLERR | POLLHUP) != 0 { return }
            if polled[0].revents & ~Int16(POLLOUT) != 0 {
                let bytes = try Self.readSome(from: socket.number)
                if bytes.isEmpty {
                    if inputIsOpen, try hasEnded(input) {
                        inputIsOpen = false
                        owed.inputEnded()
                    }
                    if inputIsOpen || owed.areOutstanding {
                        closingError = owed.closingError
                        throw hasGone
                    }
                    return
                }
                owed.received(bytes)
                switch DescriptorOutput.write(bytes, to: output) {
                case nil: break
                case EPIPE: return
                case let code?: throw .system("cannot write the node's answers", code)
                }
            }
            if polled[1].revents != 0 {
                let bytes = try Self.readSome(from: input)
                if bytes.isEmpty {
                    inputIsOpen = false
                    owed.inputEnded()
                } else {
                    owed.sent(bytes)
                    unsent += bytes
                }
            }
            if nodeReads, !unsent.isEmpty { nodeReads = try sendSome() }
            if !inputIsOpen, nodeReads, unsent.isEmpty {
                _ = shutdown(socket.number, Int32(SHUT_WR))
                nodeReads = false
            }
        }
    }

    /// Asks on another connection, because the answers on this one are the program's.
    private func checkAnswers() throws(ControlError) {
        do throws(ControlError) {
            _ = try ControlClient(home: home, timeout: patience, patience: patience / 2).call("version", timeout: nil)
        } catch  where error.kind == .timedOut { throw doesNotAnswer } catch { return }
    }

    /// Whether `input` is at its end, as far as a poll without waiting can tell.
    private func hasEnded(_ input: Int32) throws(ControlError) -> Bool {
        var polled = pollfd(fd: input, events: Int16(POLLIN), revents: 0)
        return poll(&polled, 1, 0) > 0 ? try Self.readSome(from: input).isEmpty : false
    }
}

/// The answers that a node still owes, derived from the lines in both directions.
struct OwedAnswers {
    private(set) var count = 0
    private(set) var isStreaming = false
    /// A failure of the connection, not of a request.
    private(set) var closingError: ControlError?
    private var subscribing: Set<RequestID> = []
    /// `nil` after a line over the limit: the node closes the connection then.
    private var outgoing: LineSplitter? = LineSplitter(byteLimit: ControlLimits.requestByteCount)
    private var incoming: LineSplitter? = LineSplitter(byteLimit: ControlLimits.responseByteCount)
    /// Length of the body that comes next in ``outgoing``.
    private var bodyByteCount = 0

    var areOutstanding: Bool { count > 0 || isStreaming }

    mutating func sent(_ bytes: [UInt8]) {
        outgoing?.append(bytes)
        do throws(LineSplitter.LineTooLong) {
            while bodyByteCount == 0 || outgoing?.takeBytes(bodyByteCount) != nil {
                bodyByteCount = 0
                guard let line = try outgoing?.nextLine() else { return }
                asked(line)
            }
        } catch { outgoing = nil }
    }

    /// The last line may lack a newline.
    mutating func inputEnded() { if bodyByteCount == 0, let line = outgoing?.takeRest() { asked(line) } }

    mutating func received(_ bytes: [UInt8]) {
        incoming?.append(bytes)
        do throws(LineSplitter.LineTooLong) { while let line = try incoming?.nextLine() { answered(line) } } catch {
            incoming = nil
        }
    }

    private mutating func asked(_ line: ByteBuffer) {
        // The node answers a line that it cannot parse, too.
        guard let request = try? ControlRequest(line: line.readableBytesView) else {
            count += 1
            return
        }
        if request.id != nil { count += 1 }
        bodyByteCount = request.bodyByteCount
        switch request.method {
        case ControlRequest.subscribe: if let id = request.id { subscribing.insert(id) }
        case ControlRequest.unsubscribe:
            subscribing = []
            isStreaming = false
        default: break
        }
    }

    private mutating func answered(_ line: ByteBuffer) {
        let line = line.readableBytesView
        if line.starts(with: ControlResponse.notificationStart.utf8) {
            if line.starts(with: ControlResponse.droppedStart.utf8) { isStreaming = false }
            return
        }
        if line.starts(with: #"{"error""#.utf8), case .failure(.null, let error)? = try? ControlResponse(line: line) {
            closingError = error
        }
        count = max(0, count - 1)
        guard !subscribing.isEmpty, let response = try? ControlResponse(line: line) else { return }
        switch response {
        case .success(let id, _): if subscribing.remove(id) != nil { isStreaming = true }
        case .failure(let id, _): subscribing.remove(id)
        case .notification: break
        }
    }
}
