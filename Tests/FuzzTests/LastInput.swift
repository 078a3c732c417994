import Glibc

/// The input that a thread runs, printed by the trap handler of that thread, because the process cannot report it
/// otherwise.
enum LastInput {
    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        pthread_key_create(&key, nil)
        for number in [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE] {
            signal(number) { number in
                if let line = pthread_getspecific(LastInput.key) {
                    write(2, line, strlen(line.assumingMemoryBound(to: CChar.self)))
                }
                signal(number, SIG_DFL)
                raise(number)
            }
        }
        return key
    }()

    static func note(_ line: String, while run: () throws -> Void) rethrows {
        try line.withCString { line in
            pthread_setspecific(key, line)
            defer { pthread_setspecific(key, nil) }
            try run()
        }
    }
}
