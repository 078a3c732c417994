#!/bin/sh
# Makes a directory in which the linker finds the libraries as archives alone, so that a program linked with it needs no
# shared library but glibc's. For SwiftPM, descriptions for pkg-config that lead there: what it reads in Debian's comes
# before any other -L.
#
#   archives.sh DIRECTORY
set -eu
mkdir -p "$1"
directory=$(cd "$1" && pwd)
machine=$(uname -m)-linux-gnu
for name in sodium crypto secp256k1 z miniupnpc stdc++ gcc_eh; do
    archive=$(find "/usr/lib/$machine" "/usr/lib/gcc/$machine" -name "lib$name.a" | sort -V | tail -n 1)
    [ -n "$archive" ] || { echo "there is no lib$name.a" >&2; exit 1; }
    ln -sf "$archive" "$directory/lib$name.a"
done
# Compilers ask for the shared one of the two by its name.
ln -sf libgcc_eh.a "$directory/libgcc_s.a"
for name in libsodium libcrypto libsecp256k1 zlib miniupnpc; do
    sed -E "s|^((shared)?libdir)=.*|\1=$directory|" "$(pkg-config --variable=pcfiledir "$name")/$name.pc" \
        >"$directory/$name.new"
    # An unchanged file keeps its time: nothing is built anew.
    cmp -s "$directory/$name.new" "$directory/$name.pc" || cp "$directory/$name.new" "$directory/$name.pc"
    rm "$directory/$name.new"
done
