"""Program that starts commands: single-threaded, so that it may fork, and of the standard library alone.

The service starts `program`, the launcher. It forks a keeper for each command that runs at the same time.
A keeper forks and executes one command after the other. As a child subreaper it is the parent of all that
its command leaves behind, and kills that. Their imports are relative: this folder is a package by itself.
"""
