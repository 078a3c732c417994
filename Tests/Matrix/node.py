"""One real node in a namespace, asked over its control socket, which is the same in all of them."""
import json
import os
import socket
import subprocess
import threading
import time

from kinds import PORT


class Failure(Exception):
    pass


class Refused(Failure):
    pass


#: What runs now, so that a signal can end it.
running = set()


def end_all():
    for process in list(running):
        process.terminate()


class Node:
    def __init__(self, mayfly, network, role, directory, flags=()):
        self.mayfly = mayfly
        self.network = network
        self.role = role
        self.home = f"{directory}/{role}"
        self.log = f"{directory}/{role}.log"
        self.flags = list(flags)
        self.process = None
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("MAYFLY")}
        self.environment["SWIFT_BACKTRACE"] = "enable=no"

    def start(self):
        listen = [word for host in ("0.0.0.0", "[::]") for word in ("--listen", f"tcp://{host}:{PORT}")]
        done = subprocess.run([self.mayfly, "init", "--name", self.role, *listen, "--home", self.home],
                              capture_output=True, text=True, env=self.environment)
        if done.returncode:
            raise Failure(f"{self.role}: init: {done.stderr}")
        self.process = subprocess.Popen(
            self.network.command(self.role, self.mayfly, "run", "--json", "--home", self.home, *self.flags),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=open(self.log, "ab"), env=self.environment,
            # The terminal's signals are for the matrix alone.
            start_new_session=True)
        running.add(self.process)
        line = self.process.stdout.readline().decode()
        if '"ready"' not in line:
            raise Failure(f"{self.role} does not start: {line.strip()}")

    def call(self, method, seconds=30, **params):
        """- Raises: `Refused` for an error of the method's, `Failure` for everything else."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            try:
                connection.connect(f"{self.home}/control.sock")
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile("rb") as stream:
                    for line in stream:
                        answer = json.loads(line)
                        if answer.get("id") != 1:
                            continue
                        if "error" in answer:
                            raise Refused(f"{self.role}: {method}: {answer['error'].get('message')}")
                        return answer["result"]
            except OSError as error:
                raise Failure(f"{self.role}: {method}: {error}") from None
        raise Failure(f"{self.role} closes the control socket at {method}")

    def send(self, text, seconds):
        """- Returns: the seconds until it was delivered."""
        begin = time.monotonic()
        self.call("send", seconds + 10, conversation="room", text=text, wait="delivered", timeout=f"{seconds}s")
        return time.monotonic() - begin

    def path(self):
        """How the other member is reached: path, transport, family; or None."""
        for member in self.call("conversation.members", conversation="room")["members"]:
            if member.get("path") and member.get("link"):
                if not member["link"]["postQuantum"]:
                    raise Failure(f"a link without ML-KEM: {member['link']}")
                return member["path"], member["link"]["transport"], member["link"]["family"]
        return None

    def texts(self):
        messages = self.call("read", conversation="room", last=100)["messages"]
        return [one["text"] for one in messages if one["from"] != "system"]

    @property
    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, seconds=60):
        """- Returns: whether it ended by itself, and well."""
        if self.process is None:
            return True
        was_alive = self.is_alive
        if was_alive:
            self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        running.discard(self.process)
        self.process.stdout.close()
        self.process = None
        return was_alive and code == 0


def until(what, seconds, ready, stopping, pause=0.1):
    """Asks until there is an answer, which is returned."""
    end = time.monotonic() + seconds
    while True:
        answer = ready()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Failure(f"{what}: not in {seconds} s")
        if stopping.wait(pause):
            raise Failure("stopped")


def both(*actions):
    """Runs them at the same time. - Returns: what each returned. - Raises: what the first of them raised."""
    results = [None] * len(actions)

    def run(index, action):
        try:
            results[index] = action()
        except Exception as error:
            results[index] = error
    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
