"""Find the phrases that CONTRIBUTING forbids, in everything that people read, and in commit subjects.

Prints each finding with its file and line. Fails on any that tools/prose.toml does not allow with a reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tools.prose_text import Passage, read_passages, split_fences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = "tools/prose.toml"
CHECKED: Final = (
    "src",
    "docs",
    "tests",
    "tools",
    "bench",
    "examples",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Makefile",
    ".ci",
)
SENTENCE_WORDS: Final = 25
LINE_LENGTH: Final = 110
SUBJECT_LENGTH: Final = 72

# Pattern and advice; found anywhere in a passage.
PHRASES: Final = {
    r"(?<!\bthere )\b(?:is|are|was|were) no (?!longer|more than|less|fewer|way\b|need|such|one\b)": (
        "`is no`: write `is not a`"
    ),
    r"\bnobody\b|\bwhoever\b|\bwhomever\b": "`nobody`, `whoever`: say who, or `if none`",
    r"\bso many\b": "`so many`: write `this many`, or the number",
    r"\b(?:stands?|stood|standing) in\b": "`stands in`: write `is in`, or `see`",
    r"\b(?:stands?|stood) (?:before|behind|there|next to)\b": "`stands before`: write `is before`",
    r"\b(?:in|by|of|at|from) whatever\b": "`in whatever`: write `in any`",
    r"\bobeys? no\b": "`obeys no`: write `ignores`",
    r"\bwhatever (?:of|became)\b|\bwhat(?:ever)? (?:became|becomes|came|comes) of\b|\bto become of\b": (
        "`what became of`: write `the outcome of`"
    ),
    r"\banew\b|\bbeside\b|\bforemost\b": "`anew`, `beside`, `foremost`: write `again`, `next to`, `first`",
    r"\bbut for\b": "`but for`: write `except`",
    r"\b(?:that|which|what) cannot be(?=[.,;:]|$)": "`that cannot be`: write `an invalid …`",
}
# Pattern and advice; found where a sentence begins.
BEGINNINGS: Final = {
    r"(?:Of|So many|Those|Whoever|Whose|For what)\b": "begin with the subject",
    r"Who\b(?!.*\?$)": "begin with the subject, not with `Who`",
    r"What (?:\S+ )+?(?:is|are)\b(?!.*\?$)": "begin with the subject, not with `What … is`",
}
_PHRASES: Final = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in PHRASES.items()]
_BEGINNINGS: Final = [(re.compile(pattern), advice) for pattern, advice in BEGINNINGS.items()]
# Passages of these kinds are not whole sentences, so they may begin with any word.
_WITHOUT_SENTENCES: Final = {"heading", "name", "markup"}

# First words that look like another form of a verb, and are imperatives.
_IMPERATIVES: Final = {
    *(
        "Address",
        "Bypass",
        "Compress",
        "Cross",
        "Discuss",
        "Dismiss",
        "Express",
        "Focus",
        "Guess",
        "Pass",
        "Press",
    ),
    *(
        "Process",
        "Stress",
        "Suppress",
        "Witness",
        "Embed",
        "Exceed",
        "Feed",
        "Need",
        "Proceed",
        "Seed",
        "Shed",
    ),
    *("Speed", "Spread", "Succeed", "Bring", "Ping", "Ring", "Spring", "String", "Swing"),
}
_NOT_VERBS: Final = {
    "A",
    "An",
    "The",
    "This",
    "Some",
    "No",
    "More",
    "New",
    "Now",
    "What",
    "Also",
    "And",
    "For",
    "In",
}


class Finding(NamedTuple):
    """A place in a file, or a commit, that breaks a rule."""

    path: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.advice}; found: {self.text}"


def main(arguments: list[str]) -> int:
    """Print the findings; return 1 if there are any, or an allowance is not needed."""
    table = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))
    findings = [*check_files(list_files(ROOT)), *check_subjects(read_subjects(table["commits_since"]))]
    findings, unused = apply_allowances(findings, table.get("allowances", []))
    return report(findings, unused, tuple(arguments) or "")


def report(findings: list[Finding], unused: list[dict[str, str]], wanted: str | tuple[str, ...] = "") -> int:
    """Print the findings in `wanted` paths; return 1 if there is any finding, or an allowance is unused."""
    for finding in findings:
        if finding.path.startswith(wanted):
            print(finding)
    print(f"{len(findings)} findings: {dict(count_by_folder(findings))}")
    for allowance in unused:
        print(f"{TABLE}: nothing needs the allowance {allowance}", file=sys.stderr)
    return 1 if findings or unused else 0


def list_files(root: Path) -> list[Path]:
    """Return the files that are checked, also those that are not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *CHECKED]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [root / name for name in sorted(set(names.split("\0"))) if name and (root / name).is_file()]


def check_files(paths: Iterable[Path], root: Path = ROOT) -> Iterator[Finding]:
    """Yield the findings in the prose of files."""
    for path in paths:
        name = path.relative_to(root).as_posix()
        for passage in read_passages(path):
            yield from check_passage(name, passage)
        if path.suffix == ".md":
            yield from check_lines(name, path.read_text(encoding="utf-8"))


def check_passage(name: str, passage: Passage) -> Iterator[Finding]:
    """Yield the forbidden phrases and beginnings of a passage, and the long sentences of a page."""
    for pattern, advice in _PHRASES:
        for match in pattern.finditer(passage.text):
            yield Finding(name, passage.line_at(match.start()), _context(passage.text, match), advice)
    for position, sentence in passage.sentences():
        line = passage.line_at(min(position, len(passage.text) - 1))
        if passage.kind not in _WITHOUT_SENTENCES:
            for pattern, advice in _BEGINNINGS:
                if pattern.match(sentence):
                    yield Finding(name, line, sentence[:60], advice)
        words = count_words(sentence)
        if words > SENTENCE_WORDS and name.endswith(".md"):
            yield Finding(name, line, sentence[:60], f"{words} words in a sentence: at most {SENTENCE_WORDS}")


def _context(text: str, match: re.Match[str]) -> str:
    return text[max(match.start() - 20, 0) : match.end() + 30]


def count_words(sentence: str) -> int:
    """Return the number of words; code between backticks is one."""
    return sum(
        any(character.isalnum() or character == "`" for character in word) for word in sentence.split()
    )


def check_lines(name: str, text: str) -> Iterator[Finding]:
    """Yield a wrong beginning of a page, numbers without an item, and lines that are too long.

    Tables and addresses may be wider.
    """
    introduction = next((line for line in text.splitlines()[1:] if line.strip()), "")
    if name.startswith("docs/") and not introduction.startswith("After "):
        yield Finding(name, 1, introduction[:60], "begin a page with `After reading this page you can …`")
    for number, line, language in split_fences(text, 0):
        if language is None and re.fullmatch(r"\s*\d+\.\s*", line):
            yield Finding(name, number, line, "a number without its item: write them on one line")
        shown = re.sub(r"\]\([^)]*\)", "]", line)
        if len(shown) > LINE_LENGTH and language is None and not line.lstrip().startswith("|"):
            yield Finding(name, number, line[:60], f"{len(shown)} characters in a line: one clause a line")


def read_subjects(base: str) -> list[tuple[str, str]]:
    """Return short hash and subject of each commit since the base, which the history must hold."""
    command = ["git", "log", "--no-merges", "--format=%h\t%s", f"{base}..HEAD"]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [(commit, subject) for commit, _, subject in (line.partition("\t") for line in lines)]


def check_subjects(subjects: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Yield the commits whose subject is too long or does not begin with an imperative."""
    for commit, subject in subjects:
        first = subject.split(" ", 1)[0]
        if len(subject) > SUBJECT_LENGTH:
            advice = f"{len(subject)} characters in a subject: at most {SUBJECT_LENGTH}"
            yield Finding(f"commit {commit}", 0, subject, advice)
        if not is_imperative(first):
            yield Finding(f"commit {commit}", 0, subject, "begin a subject with an imperative: `Add`, `Fix`")


def is_imperative(word: str) -> bool:
    """Return whether a subject may begin with this word, judged by the word's form."""
    if word in _IMPERATIVES:
        return True
    return (
        word.isalpha() and word.istitle() and word not in _NOT_VERBS and not word.endswith(("s", "ed", "ing"))
    )


def apply_allowances(
    findings: list[Finding], allowances: list[dict[str, str]]
) -> tuple[list[Finding], list[dict[str, str]]]:
    """Return the findings without those that are allowed, and the allowances that allow nothing.

    An allowance has a path, a part of the text that is found, and a reason. Without the text it allows the
    whole file.
    """
    used: set[int] = set()
    left = []
    for finding in findings:
        matching = [number for number, allowance in enumerate(allowances) if _allows(allowance, finding)]
        used.update(matching)
        if not matching:
            left.append(finding)
    return left, [allowance for number, allowance in enumerate(allowances) if number not in used]


def _allows(allowance: dict[str, str], finding: Finding) -> bool:
    if not allowance["reason"]:
        raise ValueError(f"{TABLE}: the allowance for {allowance['path']} gives no reason")
    return finding.path == allowance["path"] and allowance.get("text", "") in finding.text


def count_by_folder(findings: Iterable[Finding]) -> Counter[str]:
    """Return the number of findings in each top-level folder or file."""
    return Counter(finding.path.split("/", 1)[0].split(" ", 1)[0] for finding in findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
