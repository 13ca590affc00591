"""Run a peer: `python -m bench.peers NAME describe|enqueue|work`."""

from __future__ import annotations

import importlib
import sys

from bench.peers.shape import main

main(importlib.import_module(f"bench.peers.{sys.argv[1]}").PEER, *sys.argv[2:])
