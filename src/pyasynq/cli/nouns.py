"""Groups of commands under a noun: `pyasynq queue list`, with aliases and suggestions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyasynq.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class OperatorCommand(click.Command):
    """A command whose help shows examples before its options.

    Args:
        examples: example command lines.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the options."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_options(ctx, formatter)


class NounGroup(click.Group):
    """Command group under a noun, such as `pyasynq queue`, with Asynq's names as aliases.

    Args:
        aliases: the command that each alias stands for.
        default: the command that runs if none is named; empty if a name is required.
    """

    command_class = OperatorCommand

    def __init__(
        self, *args: Any, aliases: Mapping[str, str] | None = None, default: str = "", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._aliases = aliases or {}
        self._default = default

    def name_command(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments; if they name no command, put the default command's name in front."""
        is_named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return args if is_named or not self._default else [self._default, *args]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as if the default command had been named, if none is."""
        return super().parse_args(ctx, self.name_command(ctx, args))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name or an alias."""
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if it does not exist, suggest the most similar one."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = [*self.commands, *self._aliases]
            ctx.fail(f"there is no command {args[0]!r}{nearest(args[0], known)}")
        return super().resolve_command(ctx, args)
