#!/usr/bin/env bash
# Two real nodes on this machine: they meet, agree to keep messages for a day, talk, restart, and destroy what they said.
# Everything that is claimed is checked; the first thing that does not hold ends the demo with exit code 1.
#
#   MAYFLY=path/to/mayfly bash Tests/Demo/demo.sh        needs bash and python3; takes a few seconds
set -u
MAYFLY=$(realpath "${MAYFLY:-.build/release/mayfly}")
WORK=$(mktemp -d "${TMPDIR:-/tmp}/mayfly-demo.XXXXXX")
NAME=garden-party
SAID_BY_ANN='the spare key is under the blue pot'
SAID_BY_BOB='then I water the roses on Sunday'
declare -A PID LISTEN
unset MAYFLY_HOME MAYFLY_PASSPHRASE_FILE CREDENTIALS_DIRECTORY

clean_up() {
    for node in "${!PID[@]}"; do
        kill -KILL "${PID[$node]}" 2>/dev/null
        wait "${PID[$node]}" 2>/dev/null
    done
    rm -rf "$WORK"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

step() { printf '\n== %s\n' "$*"; }
tell() { printf '   %s\n' "$*"; }
fail() {
    printf '   FAILED: %s\n' "$*"
    for node in ann bob; do sed "s/^/   log of $node: /" "$WORK/$node.err" 2>/dev/null; done
    exit 1
}
# check WHAT COMMAND…: the command must succeed.
check() {
    local what=$1
    shift
    if "$@"; then printf '   checked: %s\n' "$what"; else fail "$what"; fi
}
expect() { check "$1: $2" test "$2" = "$3"; }

# on NODE ARGUMENTS…: runs mayfly as this node and shows command and output. OUT is the output, CODE the exit code.
on() {
    local node=$1 shown='' word
    shift
    for word in "$@"; do
        case $word in
        mayfly:*) word="'${word:0:32}…'" ;;
        *[\ \*]*) word="'$word'" ;;
        esac
        shown+=" $word"
    done
    printf '%s$ mayfly%s\n' "$node" "$shown"
    OUT=$("$MAYFLY" "$@" --home "$WORK/$node" 2>&1 </dev/null)
    CODE=$?
    [ -z "$OUT" ] || printf '%s\n' "$OUT" | cut -c1-110
}
# ask NODE FIELD ARGUMENTS…: runs quietly with --json and prints one field, such as `confirmed.0`.
ask() {
    local node=$1 field=$2
    shift 2
    "$MAYFLY" "$@" --json --home "$WORK/$node" 2>/dev/null </dev/null | tail -n 1 | field "$field"
}
field() {
    python3 -c '
import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1].split("."):
    value = value[int(key)] if isinstance(value, list) else value[key]
print(value)' "$1" 2>/dev/null
}
# happened NODE EVENT: waits until it has; a minute at most, for a slow machine.
happened() { "$MAYFLY" watch --since 0 --until "$2" --timeout 60 --json --home "$WORK/$1" >/dev/null 2>&1; }

start() {
    local node=$1 line=''
    rm -f "$WORK/$node.ready"
    mkfifo "$WORK/$node.ready"
    "$MAYFLY" run --listen "${LISTEN[$node]:-tcp://127.0.0.1:0}" --home "$WORK/$node" \
        >"$WORK/$node.ready" 2>>"$WORK/$node.err" </dev/null &
    PID[$node]=$!
    read -r -t 60 line <"$WORK/$node.ready"
    LISTEN[$node]=$(printf '%s' "$line" | field listen.0)
    [ -n "${LISTEN[$node]}" ] || fail "$node's node starts"
    printf '%s$ mayfly run &\n' "$node"
    tell "process ${PID[$node]} listens on ${LISTEN[$node]}"
}
stop() {
    printf '%s$ kill -TERM %s\n' "$1" "${PID[$1]}"
    kill -TERM "${PID[$1]}"
    wait "${PID[$1]}"
    check "$1's node stopped cleanly" test $? -eq 0
    unset "PID[$1]"
}
# absent TEXT: in no byte of any file of both homes, nor in what the nodes logged.
absent() { ! grep -rqaF -e "$1" "$WORK/ann" "$WORK/bob" "$WORK/ann.err" "$WORK/bob.err" 2>/dev/null; }
segments() { find "$WORK/$1/inboxes" -name '*.seg'; }
list_home() { (cd "$WORK/$1" && find . -type f -printf '   %s bytes\t%P\n' | sort -k 3); }

[ -x "$MAYFLY" ] || fail "$MAYFLY is there; build it with \`make build\`"

step 'Two nodes, each with a home directory of its own'
for node in ann bob; do
    on $node init --name $node --listen tcp://127.0.0.1:0
    expect 'exit code' "$CODE" 0
    start $node
done

step 'Ann starts a conversation and invites Bob'
on ann conversation create --name "$NAME" --as ann
expect 'exit code' "$CODE" 0
ID=$(ask ann conversation conversation show "$NAME")
INVITE=$(ask ann slug invite create "$NAME" --single-use)
tell "the invite, to be handed over as text or QR code: ${INVITE:0:48}…"
on bob join "$INVITE" --as bob --timeout 60
expect 'exit code' "$CODE" 0
on bob conversation members "$NAME"

step 'Without an agreement nothing is kept: this message is in memory only'
on ann send "$NAME" 'hello' --wait delivered --timeout 60
expect 'kept on disk' "$(ask bob stored read "$NAME")" False
on bob read "$NAME"

step 'They agree to keep messages for one day'
on ann lifetime propose "$NAME" 1d
check 'Bob is asked' happened bob lifetimeProposed
on bob lifetime accept "$NAME"
check 'Ann knows' happened ann lifetimeAgreed
on ann send "$NAME" "$SAID_BY_ANN" --wait delivered --timeout 60
expect 'exit code' "$CODE" 0
on bob send "$NAME" "$SAID_BY_BOB" --wait delivered --timeout 60
expect 'exit code' "$CODE" 0

step 'Both nodes stop and start again: the history is there'
stop ann
stop bob
start ann
start bob
for node in ann bob; do
    on $node read "$NAME"
    check "what Ann said is there" grep -qF "$SAID_BY_ANN" <<<"$OUT"
    check "what Bob said is there" grep -qF "$SAID_BY_BOB" <<<"$OUT"
done
check 'they have found each other again' happened ann peerOnline

step 'What is on the disk: keys, and records that are noise without them'
tell "in Ann's home:"
list_home ann
FILE=$(segments ann)
tell "the first bytes of ${FILE##*/}, the messages:"
od -A x -t x1 -N 64 "$FILE" | head -n 4 | sed 's/^/   /'
for text in "$SAID_BY_ANN" "$SAID_BY_BOB" "$NAME" 'hello'; do
    check "\`$text\` is in no file of either home" absent "$text"
done

step 'Ann explodes the conversation'
declare -A SEGMENT
for node in ann bob; do
    SEGMENT[$node]=$(segments $node)
    check "$node has the messages in one file" test -f "${SEGMENT[$node]}"
    cp "$WORK/$node/rows.slots" "$WORK/$node.before"
done
on ann explode "$NAME" --force
expect 'exit code' "$CODE" 0
check "Bob's node has signed that its copy is gone" happened ann deletionReceipt
on ann explode status "${ID:0:12}"
expect 'members still to confirm' "$(ask ann waiting explode status "$ID")" '[]'
MEMBER=$(ask ann confirmed.0 explode status "$ID")
check "Bob's inbox $MEMBER has confirmed" test -n "$MEMBER"

step 'Neither can read it any more'
for node in ann bob; do
    on $node read "$NAME"
    expect 'exit code (3: it has exploded)' "$CODE" 3
    on $node read "${ID:0:12}"
    expect 'exit code (3: exploded)' "$CODE" 3
    on $node conversation list
    check "it is not listed" test -z "$(grep -F "${ID:0:12}" <<<"$OUT")"
done

step 'What is on the disk now: the page with the inbox key was overwritten in place'
for node in ann bob; do
    python3 - "$WORK/$node.before" "$WORK/$node/rows.slots" "$WORK" <<'PYTHON'
import os, sys
page = 4096
old, new = (open(path, "rb").read() for path in sys.argv[1:3])
changed = [i for i in range(len(old) // page) if old[i * page:][:page] != new[i * page:][:page]]
print(f"   pages of rows.slots that differ: {changed}")
if len(changed) != 1:
    sys.exit("   exactly one page was to change")
start = changed[0] * page
for name, data in (("before", old), ("after ", new)):
    print(f"   {name} {start:06x}  {data[start:start + 24].hex(' ')} …")
pieces = [old[start + i:][:32] for i in range(0, page, 32)]
for home in ("ann", "bob"):
    for directory, _, files in os.walk(os.path.join(sys.argv[3], home)):
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.isfile(path):
                continue
            data = open(path, "rb").read()
            if any(piece in data for piece in pieces):
                sys.exit(f"   bytes of the old page are in {path}")
PYTHON
    check "no 32 bytes of $node's old page are left in any file" test $? -eq 0
done
for node in ann bob; do
    check "the directory with $node's messages is gone" test ! -e "$(dirname "${SEGMENT[$node]}")"
done
tell "in Ann's home (what is left in a .seg was the list of whom to tell, overwritten when Bob confirmed):"
list_home ann
for text in "$SAID_BY_ANN" "$SAID_BY_BOB" "$NAME"; do
    check "\`$text\` is in no file of either home" absent "$text"
done

step 'Done'
stop ann
stop bob
tell "everything was checked in $SECONDS s"
