import CSodium
import Cryptography
import Glibc
import Messaging

/// Makes all keys, nonces and random numbers of the current thread follow from a seed, by a libsodium implementation.
/// Other threads still get the operating system's random numbers.
enum SeededRandomness {
    private final class Generator {
        var randomness: Randomness
        init(seed: UInt64) { randomness = .seeded(seed) }
    }

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        guard pthread_key_create(&key, nil) == 0 else { fatalError("no key for a thread's own value") }
        return key
    }()

    private static let installation: Void = {
        _ = key
        // Process-wide singletons are made before the first run.
        warmUp()
        let implementation = UnsafeMutablePointer<randombytes_implementation>.allocate(capacity: 1)
        implementation.initialize(to: randombytes_implementation())
        implementation.pointee.implementation_name = { UnsafePointer(name) }
        implementation.pointee.random = {
            var value: UInt32 = 0
            SeededRandomness.fill(&value, 4)
            return value
        }
        implementation.pointee.buf = { buffer, count in if let buffer { SeededRandomness.fill(buffer, count) } }
        guard randombytes_set_implementation(implementation) == 0 else { fatalError("libsodium refuses") }
    }()

    private static func warmUp() {
        let key = SecretKey.generate()
        _ = key.sign(SHA256.hash([]), auxiliaryRandomness: randomBytes(32))
    }

    nonisolated(unsafe) private static let name: UnsafeMutablePointer<CChar> = strdup("seeded")

    private static func fill(_ buffer: UnsafeMutableRawPointer, _ count: Int) {
        guard let pointer = pthread_getspecific(key) else {
            var system = SystemRandomNumberGenerator()
            return copy(system.bytes(count), to: buffer)
        }
        copy(Unmanaged<Generator>.fromOpaque(pointer).takeUnretainedValue().randomness.bytes(count), to: buffer)
    }

    private static func copy(_ bytes: [UInt8], to buffer: UnsafeMutableRawPointer) {
        UnsafeMutableRawBufferPointer(start: buffer, count: bytes.count).copyBytes(from: bytes)
    }

    static func run<Result>(seed: UInt64, _ body: () -> Result) -> Result {
        installation
        let generator = Generator(seed: seed)
        pthread_setspecific(key, Unmanaged.passUnretained(generator).toOpaque())
        defer { pthread_setspecific(key, nil) }
        return withExtendedLifetime(generator, body)
    }
}
