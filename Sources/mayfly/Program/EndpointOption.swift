import Control
import Messaging

/// Endpoints as they are given to a command or a method.
enum EndpointOption {
    /// - Parameter option: for the error.
    static func endpoints(_ texts: [String], option: String) throws(ControlError) -> [Endpoint] {
        var result: [Endpoint] = []
        for text in texts {
            guard let endpoint = Endpoint(text) else {
                throw ControlError(
                    .usage,
                    "\(option): `\(text)` is not an endpoint",
                    hint: "write tcp://HOST:PORT, IPv6 in brackets"
                )
            }
            result.append(endpoint)
        }
        return result
    }
}
