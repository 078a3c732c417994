#!/bin/sh
# Builds the package of this commit in two directories, and says whether the two are the same bytes. Two whole builds: 10
# to 30 minutes on two cores.
#
#   reproducible.sh [DIRECTORY]     for the clones; one for temporary files unless given, removed at the end
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
directory=${1:-}
if [ -z "$directory" ]; then
    directory=$(mktemp -d)
    trap 'rm -rf "$directory"' EXIT
fi
commit=$(git -C "$here" rev-parse HEAD)
# Paths of different lengths and depths.
for clone in one another/deeper/and-longer; do
    mkdir -p "$(dirname "$directory/$clone")"
    rm -rf "${directory:?}/$clone"
    git clone --quiet "$here" "$directory/$clone"
    git -C "$directory/$clone" checkout --quiet "$commit"
    make --silent -C "$directory/$clone" deb
done
set -- "$directory"/one/.build/debian/*.deb "$directory"/another/deeper/and-longer/.build/debian/*.deb
sha256sum "$@"
cmp "$@" && echo "the same commit made the same bytes twice"
