import Control
import FoundationEssentials
import TestSupport

/// Speed of two minimal processes that only do the necessary work: `Tests/Floor`.
struct Floor {
    let program: String

    init() throws(Failure) {
        let own = CommandLine.arguments[0]
        program =
            own.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/") + "/floor"
        guard FileManager.default.isExecutableFile(atPath: program) else {
            throw Failure("there is no program \(program): `make bench` makes it")
        }
    }

    func measure(in directory: String, into table: inout Table) throws {
        let figures: JSONValue = try JSONReader.read(try Child.run([program, directory, "20000"]).dropLast())
        func add(_ figure: Figure, _ name: String) throws {
            switch figures[name] {
            case .number(let value): table.add(figure, value)
            case .integer(let value): table.add(figure, Double(value))
            default: throw Failure("the floor has no figure `\(name)`: \(figures.text)")
            }
        }
        try add(.floorRate, "rate")
        try add(.floorSenderTime, "senderCPU")
        try add(.floorReceiverTime, "receiverCPU")
        try add(.floorStored, "stored")
        try add(.floorMemory, "memory")
        try add(.floorBulk, "bulk")
    }
}
