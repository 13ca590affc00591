"""`python -m pyasynq` is the command `pyasynq`."""

from pyasynq.cli.commands import main

main(prog_name="pyasynq")
