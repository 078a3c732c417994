#!/bin/sh
# The files of an installation: the program, its manual, the completions of three shells, and the service.
#
#   files.sh install PROGRAM PREFIX [DESTDIR]     SOURCE_DATE_EPOCH is the date in the manual
#   files.sh uninstall PREFIX [DESTDIR]
#
# What is below PREFIX is the same for the package (/usr) and for `make install` (/usr/local), but for the place where zsh
# looks: Debian's zsh has vendor-completions for packages, site-functions for the machine's own.
set -eu
umask 022
here=$(dirname "$0")

layout() {
    root=$2$1
    bin=$root/bin
    share=$root/share
    bash=$share/bash-completion/completions
    fish=$share/fish/vendor_completions.d
    zsh=$share/zsh/site-functions
    [ "$1" != /usr ] || zsh=$share/zsh/vendor-completions
    units=$root/lib/systemd/system
    user_units=$root/lib/systemd/user
    users=$root/lib/sysusers.d
    directories=$root/lib/tmpfiles.d
}

page() {
    gzip -9n <"$1" >"$2/$(basename "$1").gz"
}

put() {
    program=$1
    prefix=$2
    layout "$prefix" "${3:-}"
    mkdir -p "$bin" "$bash" "$fish" "$zsh" "$units" "$user_units" "$users" "$directories" \
        "$share/man/man1" "$share/man/man5" "$share/man/man7"
    # .swift_modhash is of the compiler's command lines, which name the directory of the build.
    strip --remove-section=.swift_modhash -o "$bin/mayfly.new" "$program"
    chmod 0755 "$bin/mayfly.new"
    mv "$bin/mayfly.new" "$bin/mayfly"
    "$program" --generate-completion-script bash | sed "1{/^#!/d}" >"$bash/mayfly"
    "$program" --generate-completion-script fish >"$fish/mayfly.fish"
    "$program" --generate-completion-script zsh >"$zsh/_mayfly"
    pages=$(mktemp -d)
    "$program" --experimental-dump-help | python3 "$here/../Manual/manual.py" "$pages"
    for section in 1 5 7; do
        for file in "$pages"/*."$section" "$here"/../Manual/*."$section"; do
            [ ! -e "$file" ] || page "$file" "$share/man/man$section"
        done
    done
    rm -r "$pages"
    sed "s|/usr/bin/|$prefix/bin/|" "$here/mayfly.service" >"$units/mayfly.service"
    sed "s|/usr/bin/|$prefix/bin/|" "$here/mayfly.user.service" >"$user_units/mayfly.service"
    cp "$here/mayfly.socket" "$units/mayfly.socket"
    cp "$here/mayfly.sysusers" "$users/mayfly.conf"
    cp "$here/mayfly.tmpfiles" "$directories/mayfly.conf"
}

take() {
    layout "$1" "${2:-}"
    rm -f "$bin/mayfly" "$bash/mayfly" "$fish/mayfly.fish" "$zsh/_mayfly" "$units/mayfly.service" "$units/mayfly.socket" \
        "$user_units/mayfly.service" \
        "$users/mayfly.conf" \
        "$directories/mayfly.conf" "$share"/man/man1/mayfly.1.gz "$share"/man/man1/mayfly-*.1.gz \
        "$share"/man/man5/mayfly-*.5.gz "$share"/man/man7/mayfly-*.7.gz
}

command=$1
shift
case $command in
install) put "$@" ;;
uninstall) take "$@" ;;
*)
    echo "files.sh: there is no command $command" >&2
    exit 64
    ;;
esac
