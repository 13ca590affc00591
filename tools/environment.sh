#!/bin/sh
# Make the virtual environment of the workshop, or bring it up to date: tools/environment.sh FOLDER
# INTERPRETER=path makes it from that Python instead of the newest on PATH.
set -eu

folder=$1

is_recent_enough() {
    # Run it: a name on PATH may be a shim of a version manager with nothing behind it.
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${INTERPRETER:-}" ]; then
        echo "$INTERPRETER"
        return
    fi
    for name in python3.13 python3.12 python3.11 python3; do
        if is_recent_enough "$name"; then
            echo "$name"
            return
        fi
    done
    echo "No Python 3.11 or later found: tried python3.13, python3.12, python3.11 and python3 on PATH." >&2
    echo "Install one and run make again." >&2
    exit 1
}

create() {
    if "$1" -c 'import ensurepip' >/dev/null 2>&1; then
        "$1" -m venv "$folder"
    elif command -v uv >/dev/null; then
        uv venv --quiet --seed --python "$1" "$folder"
    elif "$1" -m virtualenv --version >/dev/null 2>&1; then
        "$1" -m virtualenv --quiet --python "$1" "$folder"
    elif command -v virtualenv >/dev/null; then
        virtualenv --quiet --python "$1" "$folder"
    else
        version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "$1 cannot create virtual environments: its module ensurepip is missing." >&2
        echo "On Debian and Ubuntu type: apt-get install python$version-venv" >&2
        exit 1
    fi
}

rm -f "$folder"/made-*
if ! is_recent_enough "$folder/bin/python" || ! "$folder/bin/pip" --version >/dev/null 2>&1; then
    python=$(find_python)
    echo "Setting up $folder with $("$python" --version), once; this takes about a minute."
    rm -rf "$folder"
    create "$python"
fi
# Everything is pinned and installed by name, the build backend included: when it is there already, pip uses no network.
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$folder/bin/python" -m pip install --quiet --requirement requirements/dev.txt
"$folder/bin/python" -m pip install --quiet --no-deps --no-build-isolation --editable .
