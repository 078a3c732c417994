#if DEBUG || FUZZING
    import NIOCore
    import struct Messaging.Timestamp
    @testable import Control
    @testable import Program

    /// The control socket: lines, JSON, requests, and every method's parameters.
    let controlTargets: [FuzzTarget] = [
        FuzzTarget("control", byteCountLimit: 16_384) {
            var seeds: [[UInt8]] = []
            for method in Methods.all { seeds.append([0] + exampleRequest(method)) }
            seeds.append([7] + exampleRequest(MessageMethods.send) + [13, 10, 10] + exampleRequest(NodeMethods.status))
            return seeds
        } run: { bytes in
            var splitter = LineSplitter(byteLimit: 8_192)
            let piece = Int(bytes.first ?? 0)
            let stream = Array(bytes.dropFirst()) + [10]
            let size = piece == 0 ? stream.count : piece
            for start in stride(from: 0, to: stream.count, by: size) {
                var buffer = ByteBuffer(bytes: stream[start..<min(stream.count, start + size)])
                splitter.append(&buffer)
                do {
                    while let line = try splitter.nextLine() { try checkLine(Array(line.readableBytesView)) }
                } catch is LineSplitter.LineTooLong { return }
            }
            try expect(!splitter.holdsBytes, "bytes are left after the last newline")
        },
        FuzzTarget("json", byteCountLimit: 8_192) {
            [
                #"{"a":[1,-0.5e3,true,false,null,"\u00e9\ud83d\ude00\n\\"],"b":{}}"#, "[9223372036854775807,1e308]",
                " \t\r\n[[[[]]]] ", #""\/\b\f\r\t""#,
            ].map { Array($0.utf8) }
        } run: { bytes in
            guard let value: JSONValue = try? JSONReader.read(bytes) else { return }
            // `1e0` is written as an integer, so the texts are compared.
            let again: JSONValue? = try? JSONReader.read(value.utf8)
            try expect(again?.text == value.text, "\(value) does not come back")
            _ = try? value.decoded(as: JSONValue.self)
        },
        // Input of a node's client: responses, failures and events.
        FuzzTarget("response", byteCountLimit: 8_192) {
            let event = Event(
                cursor: 7, event: .messageExpired, at: Timestamp(milliseconds: 1_795_247_146_133),
                conversation: HexID(1, 2), inbox: "i1", values: ["hi"])
            let responses: [ControlResponse] = [
                .success(id: .integer(1), result: ["ok": true]),
                .failure(id: .string("x"), error: ControlError(.locked, "locked", hint: "unlock", field: "f")),
                .notification(method: ControlResponse.eventMethod, params: JSONValue(of: event)),
                .notification(method: ControlResponse.droppedMethod, params: ["cursor": 9]),
            ]
            return responses.map { $0.line.dropLast() }
        } run: { bytes in
            guard let response = try? ControlResponse(line: bytes) else { return }
            // Only known fields of a failure are kept; everything else round-trips.
            let again = try? ControlResponse(line: response.line.dropLast())
            try expect(again?.line == response.line, "\(response) comes back as \(String(describing: again))")
        },
    ]

    private func checkLine(_ line: [UInt8]) throws {
        guard let request = try? ControlRequest(line: line) else { return }
        let again = try? ControlRequest(line: request.jsonValue.utf8)
        try expect(
            again?.jsonValue.text == request.jsonValue.text, "\(request) comes back as \(String(describing: again))")
        guard let method = Methods.method(named: request.method) else { return }
        try checkParameters(method, request)
    }

    private func checkParameters<Method: ControlMethod>(_ method: Method, _ request: ControlRequest) throws {
        guard let params = try? request.params.decoded(as: Method.Params.self) else { return }
        let decoded = try? JSONValue(of: params).decoded(as: Method.Params.self)
        try expect(decoded == params, "\(params) comes back as \(String(describing: decoded))")
    }

    private func exampleRequest<Method: ControlMethod>(_ method: Method) -> [UInt8] {
        let fields = FieldSchema.fields(of: Method.Params.self)
        let params = JSONValue.object(Dictionary(uniqueKeysWithValues: fields.map { ($0.name, example(of: $0)) }))
        return ControlRequest(id: .integer(1), method: method.name, params: params).jsonValue.utf8
    }

    private func example(of field: FieldSchema) -> JSONValue {
        if field.type.hasPrefix("[") {
            let shape = FieldSchema.Shape(
                type: String(field.type.dropFirst().dropLast()), values: field.values, fields: field.fields)
            let element = FieldSchema(name: "", shape: shape, isOptional: false)
            return .array([example(of: element)])
        }
        if let value = field.values.last { return .string(value) }
        switch field.type {
        case "boolean": return true
        case "integer": return 3
        case "number": return .number(1.5)
        case "timestamp": return "2026-11-21T06:53:53Z"
        case "interval": return "90s"
        case "object": return .object(Dictionary(uniqueKeysWithValues: field.fields.map { ($0.name, example(of: $0)) }))
        default: return "1h"
        }
    }
#else
    /// Needs internal declarations.
    let controlTargets: [FuzzTarget] = []
#endif
