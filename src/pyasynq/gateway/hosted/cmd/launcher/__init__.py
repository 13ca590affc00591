"""Fork server that starts commands: single-threaded, so that it may fork; imports the standard library only.

The service starts the launcher, `program`. The launcher forks a keeper for each command that runs at the
same time. A keeper forks and executes one command after the other. As a child subreaper, the keeper becomes
the parent of the orphaned processes of its command, and kills them. Imports are relative, because this folder
is a package of its own, without pyasynq.
"""
