import Testing

/// Sockets of the service manager: sd_listen_fds(3).
@Suite("Inherited sockets", .script) struct InheritedSocketTests {
    /// Binds a TCP and a UDP socket to one port, and a third that the node does not know, and becomes the node. A
    /// second process keeps them as the manager does, so that no other program can bind there.
    private static let manager = """
        import os, socket, sys, time
        for attempt in range(100):
            kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM)
            sockets = [socket.socket(socket.AF_INET, kind) for kind in kinds]
            sockets[0].bind((sys.argv[1], 0))
            sockets[2].bind((sys.argv[1], 0))
            try:
                sockets[1].bind(sockets[0].getsockname())
                break
            except OSError:
                pass
        for number in (0, 2):
            sockets[number].listen()
        listen = "tcp://%s:%d" % sockets[0].getsockname()
        copies = [os.dup2(each.fileno(), 100 + number) for number, each in enumerate(sockets)]
        node = os.getpid()
        if os.fork() == 0:
            while os.getppid() == node:
                time.sleep(0.05)
            os._exit(0)
        for number, copy in enumerate(copies):
            os.dup2(copy, 3 + number)
        os.closerange(6, 200)
        os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(node), "3"
        os.execv(sys.argv[2], sys.argv[2:] + ["--listen", listen])
        """

    @Test func `A node listens on its inherited sockets, over TCP and UDP, and closes an unknown one`() throws {
        try withHomes { ann, bob in
            ann.prefix = ["/usr/bin/env", "python3", "-c", Self.manager, ann.host]
            try ann.start()
            try bob.start()
            #expect(
                Program.text(ann.log).contains("closed 1 socket of the service manager"), "\(Program.text(ann.log))")
            try meet(ann, bob)
            try say("over a socket that was there before the node", bob)
            try ann.stop()
            // Variables for another process, or for descriptors that are no sockets, are ignored.
            ann.prefix = ["/usr/bin/env", "LISTEN_PID=1", "LISTEN_FDS=2"]
            try ann.start(["--listen", ann.anyPort])
            try ann.stop()
            ann.prefix = ["/bin/sh", "-c", "LISTEN_PID=$$ LISTEN_FDS=70 exec \"$@\" 3</dev/null", "sh"]
            try ann.start(["--listen", ann.anyPort])
            try ann.stop()
        }
    }
}
