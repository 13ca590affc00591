#!/bin/sh
# Write requirements/dev.txt again: the newest version of every dependency, for all Pythons and platforms.
set -eu

file=requirements/dev.txt

command -v uv >/dev/null || {
    echo "pins: uv is missing; install it with: python3 -m pip install uv" >&2
    exit 1
}
{
    echo "# Every development dependency at one exact version, for Python 3.11 to 3.13 on Linux, macOS and Windows."
    echo "# Written by \`make pins\` from pyproject.toml; not edited by hand."
    uv pip compile pyproject.toml --universal --python-version 3.11 --group dev --all-extras --upgrade \
        --no-header --no-annotate --no-emit-index-url --quiet
} >"$file.new"
mv "$file.new" "$file"
