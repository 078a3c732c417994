#!/bin/sh
# Builds the Debian package of a program, for Debian 12 and 13: dpkg-deb alone, for there is one program, one unit and no
# configuration in /etc, so that debhelper would have nothing to do that is not seen better here.
#
#   package.sh PROGRAM CHECKOUTS DIRECTORY     CHECKOUTS: the sources of the Swift packages, for their notices
#
# The same program makes the same bytes, on any day: all dates are that of the changelog.
set -eu
umask 022
program=$1
checkouts=$2
result=$3
here=$(dirname "$0")
SOURCE_DATE_EPOCH=$(date -d "$(sed -n 's/^ -- .*>  //p' "$here/changelog" | head -n 1)" +%s)
export SOURCE_DATE_EPOCH LC_ALL=C
version=$(sed -n '1s/^mayfly (\(.*\)) .*/\1/p' "$here/changelog")
architecture=$(dpkg --print-architecture)
case $version in
"$("$program" version | cut -d ' ' -f 2)"*) ;;
*)
    echo "package.sh: the changelog is of $version, the program of $("$program" version)" >&2
    exit 1
    ;;
esac

mkdir -p "$result"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 0755 "$tree"
"$here/files.sh" install "$program" /usr "$tree"

documents=$tree/usr/share/doc/mayfly
mkdir -p "$documents"
gzip -9n <"$here/changelog" >"$documents/changelog.gz"
{
    while IFS= read -r line; do
        if [ "$line" = @@LICENSE@@ ]; then cat "$here/../../LICENSE"; else printf '%s\n' "$line"; fi
    done <"$here/copyright"
    for library in libsodium-dev libssl-dev libsecp256k1-dev zlib1g-dev libminiupnpc-dev; do
        printf '\n---- %s ----\n\n' "$library"
        cat "/usr/share/doc/$library/copyright"
    done
    for notice in "$checkouts"/*/NOTICE.txt; do
        [ -e "$notice" ] || continue
        printf '\n---- %s ----\n\n' "$(basename "$(dirname "$notice")")"
        cat "$notice"
    done
} >"$documents/copyright"

mkdir "$tree/DEBIAN"
for script in postinst prerm postrm; do install -m 0755 "$here/$script" "$tree/DEBIAN/$script"; done
glibc=$(objdump -T "$tree/usr/bin/mayfly" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
size=$(find "$tree/usr" -type f -printf '%s\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
cat >"$tree/DEBIAN/control" <<CONTROL
Package: mayfly
Version: $version
Architecture: $architecture
Maintainer: The Mayfly authors <mayfly@localhost>
Installed-Size: $size
Depends: libc6 (>= ${glibc#GLIBC_}), systemd | systemd-standalone-sysusers | systemd-sysusers, systemd | systemd-standalone-tmpfiles | systemd-tmpfiles
Section: net
Priority: optional
Description: peer-to-peer messages that leave nothing behind
 A node for messages between machines, and the command line that talks to it.
 Nodes talk directly, over TCP or UDP: no server, no account, no identity that
 spans conversations.
 .
 Messages stay in memory unless all members of a conversation have signed an
 agreement on how long to keep them; what is kept is sealed under keys that are
 overwritten on the disk when the time is over. One command of a
 conversation's creator destroys it on every member's machine and shows who has
 confirmed.
CONTROL
(cd "$tree" && find usr -type f | sort | xargs -d '\n' md5sum) >"$tree/DEBIAN/md5sums"

rm -f "$result"/mayfly_*.deb
# One thread: more of them cut the data into other blocks.
dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$tree" "$result/mayfly_${version}_$architecture.deb"
