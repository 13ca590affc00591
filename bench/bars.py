"""Bars: limits of measured figures. A measurement that misses one ends with exit code 1."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Bars:
    """Names of the figures that missed their bars, in the order of the checks."""

    missed: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 if a bar was missed, otherwise 0."""
        return 1 if self.missed else 0

    def check(self, name: str, value: float, *, most: float | None = None, least: float | None = None) -> str:
        """Record a miss of an upper or lower bound; return `MISSED` then, and otherwise an empty text."""
        if (most is None or value <= most) and (least is None or value >= least):
            return ""
        self.missed.append(name)
        return "MISSED"

    def tell(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        most: float | None = None,
        least: float | None = None,
    ) -> None:
        """Print a figure, its bound, and whether it missed the bound."""
        verdict = self.check(name, value, most=most, least=least)
        bound = f"at most {most:,g}" if most is not None else f"at least {least:,g}"
        print(f"{name:<56} {value:>10,.2f} {unit:<4} {bound:<16} {verdict}".rstrip(), flush=True)
