#!/bin/sh
# Print the command of a Go that can build tests/interop/peer: tools/go.sh
# A Go before 1.21 cannot fetch a newer one by itself; here it fetches one as a module, with its checksum.
set -eu

# At least what peer/go.mod asks for.
newer=v0.0.1-go1.24.0

version_of() {
    "$1" env GOVERSION 2>/dev/null | sed 's/^go1\.\([0-9]*\).*/\1/'
}

find_go() {
    for name in ${PYASYNQ_GO:-} go /usr/local/go/bin/go; do
        if command -v "$name" >/dev/null; then
            command -v "$name"
            return
        fi
    done
    echo "Go is missing: install Go 1.21 or later, or name its command in PYASYNQ_GO." >&2
    exit 1
}

go=$(find_go)
if [ "$(version_of "$go")" -ge 21 ]; then
    echo "$go"
    exit
fi
system=$("$go" env GOHOSTOS)-$("$go" env GOHOSTARCH)
folder=$("$go" env GOMODCACHE)/golang.org/toolchain@$newer.$system
(cd / && "$go" mod download "golang.org/toolchain@$newer.$system") >&2
# The files of a module cannot be executed.
chmod -R u+w "$folder"
chmod +x "$folder"/bin/* "$folder"/pkg/tool/*/*
echo "$folder/bin/go"
