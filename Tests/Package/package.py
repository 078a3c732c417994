#!/usr/bin/env python3
"""The Debian package on a machine: installed, used as its unit would use it, upgraded, removed and purged.

    package.py PACKAGE [--root DIRECTORY]

As root. What it installs goes into a layer over DIRECTORY, or over this machine's own files, and is gone with the mount
namespace at the end. DIRECTORY is a tree as debootstrap makes it: `make package SUITE=trixie`.

Exit code 77: this machine lets nobody mount such a layer, which is said.
"""

import argparse
import glob
import gzip
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
HOME = "/var/lib/mayfly"
# The libraries of glibc, which every Debian has.
GLIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"
checks = 0


def check(what, holds, details=""):
    global checks
    if not holds:
        sys.exit(f"FAILED: {what}\n{details}")
    checks += 1
    print(f"checked: {what}", flush=True)


def run(*words, code=0, **options):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, **options)
    if code is not None and done.returncode != code:
        sys.exit(f"FAILED: {' '.join(words)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


# ---- What the package holds


def inspect(package, tree):
    run("dpkg-deb", "-x", package, tree)
    program = f"{tree}/usr/bin/mayfly"
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", program).stdout))
    check("the program needs glibc and nothing else", needed <= GLIBC, needed)
    symbols = [line.split() for line in run("readelf", "-W", "--dyn-syms", program).stdout.splitlines()]
    exported = {words[7] for words in symbols if len(words) > 7 and words[6] != "UND" and words[0][:-1].isdigit()}
    own = {name for name in exported if "@" not in name}
    check("the program exports what stands in for glibc's, and nothing else", own == {"free", "realloc"}, exported)
    with open(program, "rb") as file:
        here = os.path.realpath(os.path.join(os.path.dirname(__file__), "../..")).encode()
        check("the program does not name the directory of its build", here not in file.read())
    manual(tree)
    keys(program, f"{tree}/usr/share/man/man5/mayfly-config.5.gz")
    unit(tree)
    for shell, path in (("zsh", "zsh/vendor-completions/_mayfly"), ("fish", "fish/vendor_completions.d/mayfly.fish")):
        if shutil.which(shell):
            run(shell, "-n", f"{tree}/usr/share/{path}")
            check(f"{shell} can read its completions", True)


def manual(tree):
    pages = sorted(glob.glob(f"{tree}/usr/share/man/man*/*.gz"))
    names = {os.path.basename(page)[:-3] for page in pages}
    check("there is a page for the program, its commands, its files and its use", {
        "mayfly.1", "mayfly-send.1", "mayfly-conversation.1", "mayfly-config.5", "mayfly-concepts.7",
        "mayfly-operations.7", "mayfly-promises.7", "mayfly-scripting.7",
    } <= names)
    plain = []
    for page in pages:
        path = page[:-3]
        with gzip.open(page) as packed, open(path, "wb") as file:
            file.write(packed.read())
        plain.append(path)
    # What mandoc calls style is checked, too, but for pages that this machine has not installed.
    lint = run("mandoc", "-Tlint", *plain, code=None)
    found = [line for line in lint.stdout.splitlines() if "referenced manual not found" not in line]
    check("mandoc finds nothing wrong in any page", not found, "\n".join(found))
    for path in plain:
        words = run("groff", "-ww", "-mandoc", "-Tutf8", "-z", path)
        if words.stderr:
            check("groff finds nothing wrong in any page", False, path + "\n" + words.stderr)
    check("groff finds nothing wrong in any page", True)
    mentioned = set()
    for path in plain:
        with open(path, encoding="utf-8") as file:
            mentioned |= {f"{name}.{section}" for name, section in re.findall(r"Xr (mayfly\S*) (\d)", file.read())}
    check("every page of ours that a page names is there", mentioned <= names, mentioned - names)
    for path in plain:
        os.unlink(path)


def keys(program, page):
    """Every key of config.json and of peers.json, as the program itself names them, has an entry."""
    with gzip.open(page, "rt", encoding="utf-8") as file:
        entries = set(re.findall(r"^\.It Ic (\w+)$", file.read(), re.M))
    with tempfile.TemporaryDirectory() as directory:
        home = f"{directory}/home"
        run(program, "init", "--home", home, "--listen", "tcp://127.0.0.1:0")
        with open(f"{home}/config.json", encoding="utf-8") as file:
            valid = json.load(file)
        wrong = {"none": 1}
        for name, place, content in (
            ("config", "config.json", {**valid, **wrong}),
            ("config", "storage", {**valid, "storage": wrong}),
            ("config", "rendezvous", {**valid, "rendezvous": wrong}),
            ("config", "mailbox", {**valid, "mailbox": wrong}),
            ("config", "a hook", {**valid, "hooks": [{"command": ["/x"], **wrong}]}),
            ("peers", "peers.json", wrong),
            ("peers", "a peer", {"peers": [{"name": "a", **wrong}]}),
        ):
            with open(f"{home}/config.json", "w", encoding="utf-8") as file:
                json.dump(valid, file)
            with open(f"{home}/{name}.json", "w", encoding="utf-8") as file:
                json.dump(content, file)
            lines = map(json.loads, run(program, "doctor", "--home", home, "--json", code=1).stdout.splitlines())
            said = next(line["message"] for line in lines if line["name"] == name)
            known = set(re.search(r"the settings are (.*)$", said)[1].split(", "))
            check(f"every key of {place} has its entry in the manual", known <= entries, known - entries)


def unit(tree):
    path = f"{tree}/usr/lib/systemd/system/mayfly.service"
    if not shutil.which("systemd-analyze"):
        return
    words = run("systemd-analyze", "security", "--offline=true", "--no-pager", path, code=None).stdout
    level = float(re.search(r"exposure level for mayfly.service: ([0-9.]+)", words)[1])
    check(f"the unit's exposure is {level}, below 3", level < 3)


# ---- On a machine


class Root:
    """The layer, seen from outside."""

    def __init__(self, path):
        self.path = path

    def run(self, *words, code=0, **options):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root",
                       "DEBIAN_FRONTEND": "noninteractive"}
        return run(CHROOT, self.path, *words, code=code, env=environment, stdin=subprocess.DEVNULL, **options)

    def user(self, *words, **options):
        """Without --home: the user of the service has the service's home."""
        return self.run(*USER, "mayfly", *words, **options)

    def has(self, path):
        return os.path.lexists(f"{self.path}{path}")


# As the unit does it: the user, no capability, no way to new ones.
USER = ["setpriv", "--reuid", "mayfly", "--regid", "mayfly", "--clear-groups", "--no-new-privs", "--bounding-set=-all",
        "--inh-caps=-all"]


class Service:
    """Runs the unit's command lines, and listens to what the node tells its service manager."""

    def __init__(self, root):
        self.root = root
        with open(f"{root.path}/usr/lib/systemd/system/mayfly.service", encoding="utf-8") as file:
            lines = [line.strip().split("=", 1) for line in file if "=" in line and not line.startswith("#")]
        self.commands = {name: value.lstrip("-").split() for name, value in lines if name.startswith("Exec")}
        self.environment = dict(value.split("=", 1) for name, value in lines if name == "Environment")
        self.environment |= {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "400000", "PATH": "/usr/bin:/bin"}
        path = f"{root.path}/run/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        os.chmod(path, 0o777)

    def next(self, seconds=30):
        ready, _, _ = select.select([self.socket], [], [], seconds)
        return self.socket.recv(4096).decode() if ready else "nothing"

    def nextBesidesPings(self):
        while True:
            words = self.next()
            if words != "WATCHDOG=1":
                return words

    def start(self):
        words = [CHROOT, self.root.path, *USER]
        before = subprocess.run([*words, *self.commands["ExecStartPre"]], env=self.environment, capture_output=True)
        check("the unit's first command ends well", before.returncode == 0, before.stderr)
        self.node = subprocess.Popen([*words, *self.commands["ExecStart"]], env=self.environment,
                                     stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        check("the unit's command serves, and says so", self.nextBesidesPings().startswith("READY=1"))
        check("it pings the watchdog", self.next() == "WATCHDOG=1" and self.next() == "WATCHDOG=1")

    def stop(self):
        # A full queue would have no room for the word that is awaited.
        while self.next(0) != "nothing":
            pass
        self.node.send_signal(signal.SIGTERM)
        check("it says that it stops", self.nextBesidesPings() == "STOPPING=1")
        check("it ends well", self.node.wait(60) == 0)


COMPLETE = r"""
source /usr/share/bash-completion/completions/mayfly
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMPREPLY=()
_mayfly mayfly "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


def complete(root, *words):
    done = root.run("bash", "-c", COMPLETE, "bash", *words)
    check(f"bash says nothing beside it: {' '.join(words)}", done.stderr == "", done.stderr)
    return done.stdout.split()


def person(root):
    """The first command of the user's unit, twice."""
    with open(f"{root.path}/usr/lib/systemd/user/mayfly.service", encoding="utf-8") as file:
        command = re.search("^ExecStartPre=/bin/sh -c '(.*)'$", file.read(), re.M)[1].replace("$$", "$")
    command = command.replace("mayfly init", "mayfly init --json")
    words = ["setpriv", "--reuid", "65000", "--regid", "65000", "--clear-groups", "env", "HOME=/tmp/person"]
    root.run("install", "-d", "-o", "65000", "/tmp/person")
    return "".join(root.run(*words, "/bin/sh", "-c", command).stdout for _ in range(2))


def live(package, root):
    """From the installation to the purge. Nobody reads what the node tells the watchdog meanwhile."""
    shutil.copy(package, f"{root.path}/tmp/mayfly.deb")
    hint = root.run("dpkg", "-i", "/tmp/mayfly.deb").stdout
    check("the installation says how to start a node", "systemctl --user enable --now mayfly" in hint, hint)
    status = os.stat(f"{root.path}{HOME}")
    number = int(root.run("id", "-u", "mayfly").stdout)
    check("the service has its own user and an empty home for it alone",
          status.st_uid == number and status.st_mode & 0o777 == 0o700 and not os.listdir(f"{root.path}{HOME}"))
    check("nothing is enabled", not root.has("/etc/systemd/system/multi-user.target.wants/mayfly.service"))
    check("the program is of the package's version",
          root.run("mayfly", "version").stdout.split()[1] in run("dpkg-deb", "-f", package, "Version").stdout)

    service = Service(root)
    lost = subprocess.run([CHROOT, root.path, *USER, *service.commands["ExecStart"]], env=service.environment,
                          capture_output=True, text=True)
    check("without a home it ends with 8, and says what to do", lost.returncode == 8 and "mayfly init" in lost.stderr)
    check("completion is silent without a node", complete(root, "mayfly", "send", "--home", HOME, "") == [])
    root.user("init", "--listen", "tcp://127.0.0.1:0")
    service.start()
    root.user("conversation", "create", "--name", "garden-party")
    root.user("conversation", "create", "--name", "$(touch /tmp/seen)")
    root.user("peer", "add", "desk", "--endpoint", "tcp://192.0.2.7:7440")
    listed = [json.loads(line) for line in root.user("conversation", "list", "--json").stdout.splitlines()]
    check("the node answers its user", {each["name"] for each in listed} == {"garden-party", "$(touch /tmp/seen)"})
    check("and root", root.run("mayfly", "status", "--home", HOME, "--json").stdout.startswith("{"))

    check("completion knows a command", complete(root, "mayfly", "conv") == ["conversation"])
    check("completion knows a conversation", complete(root, "mayfly", "send", "--home", HOME, "ga") == ["garden-party"])
    check("completion knows a peer", complete(root, "mayfly", "peer", "ping", "--home", HOME, "") == ["desk"])
    other = next(each["conversation"] for each in listed if each["name"] != "garden-party")
    offered = complete(root, "mayfly", "read", "--home", HOME, "")
    check("a name that a shell would run is offered by its id", sorted(offered) == sorted(["garden-party", other[:12]]))
    check("and is not run", not root.has("/tmp/seen"))
    if root.has("/usr/bin/man"):
        page = root.run("man", "-l", "/usr/share/man/man7/mayfly-operations.7.gz")
        check("man shows a page", "Argon2id" in page.stdout and page.stderr == "", page.stderr)

    own = person(root)
    check("the user's unit makes a home once", own.count("contactCard") == 1, own)
    root.run("dpkg", "-i", "/tmp/mayfly.deb")
    check("an upgrade keeps the home", len(root.user("conversation", "list", "--json").stdout.splitlines()) == 2)
    service.stop()
    service.start()
    check("the new version opens it", root.user("status", "--json").stdout.startswith("{"))
    service.stop()

    root.run("dpkg", "-r", "mayfly")
    check("a removal takes the program, and leaves the home",
          not root.has("/usr/bin/mayfly") and root.has(f"{HOME}/keystore"))
    root.run("dpkg", "-P", "mayfly")
    left = root.run("find", "/etc", "/usr/bin", "/usr/lib/systemd", "/usr/lib/sysusers.d", "/usr/lib/tmpfiles.d",
                    "/usr/share", "/var/lib", "-xdev", "-name", "*mayfly*", code=None).stdout
    check("a purge leaves nothing", left == "", left)
    check("but the user", root.run("id", "-u", "mayfly").stdout.strip() == str(number))


def layered(arguments, directory):
    """Mounts the layer. This process has its mount namespace for itself: what is mounted goes with it."""
    run("mount", "-t", "tmpfs", "tmpfs", directory)
    for name in ("upper", "work", "root"):
        os.mkdir(f"{directory}/{name}")
    root = f"{directory}/root"
    layers = f"lowerdir={arguments.root},upperdir={directory}/upper,workdir={directory}/work"
    done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, root], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: no layer can be mounted over {arguments.root} here: {done.stderr.strip()}")
        sys.exit(SKIPPED)
    run("mount", "-t", "proc", "proc", f"{root}/proc")
    run("mount", "-t", "tmpfs", "tmpfs", f"{root}/run")
    run("mount", "-t", "tmpfs", "tmpfs", f"{root}/tmp")
    run("mount", "-t", "tmpfs", "tmpfs", f"{root}/dev")
    for name in ("null", "zero", "full", "random", "urandom"):
        with open(f"{root}/dev/{name}", "wb"):
            run("mount", "--bind", f"/dev/{name}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    return Root(root)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("package")
    parser.add_argument("--root", default="/")
    # An empty directory to mount at, in the process that has a mount namespace.
    parser.add_argument("--at", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.package = os.path.realpath(arguments.package)
    began = time.monotonic()
    if arguments.at:
        live(arguments.package, layered(arguments, arguments.at))
        print(f"{checks} checks on a machine")
        return
    with tempfile.TemporaryDirectory() as directory:
        inspect(arguments.package, directory)
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "-p", "-f", "true"]).returncode != 0:
        print("skipped: installing it needs root and a mount namespace")
        sys.exit(SKIPPED)
    if os.path.exists(f"{arguments.root}{HOME}"):
        print(f"skipped: Mayfly is installed in {arguments.root}")
        sys.exit(SKIPPED)
    directory = tempfile.mkdtemp()
    words = ["unshare", "-m", "-p", "-f", "--kill-child", "--propagation", "private", sys.executable, __file__,
             arguments.package, "--root", os.path.realpath(arguments.root), "--at", directory]
    code = subprocess.run(words).returncode
    # Empty again; if it were not, nothing below a mount may be removed.
    os.rmdir(directory)
    print(f"the package: {time.monotonic() - began:.0f} s")
    sys.exit(code)


if __name__ == "__main__":
    main()
