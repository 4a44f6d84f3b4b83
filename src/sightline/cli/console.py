"""The console: from the words of a command line to the call of a command's function, and what commands print.

A command is a typed function. Keyword-only parameters are its flags, the others are positional; the docstring is its
help. `Annotated[…, Arg(…)]` says what types and names do not.
"""

from __future__ import annotations

import difflib
import functools
import json as json_module
import os
import re
import shlex
import shutil
import textwrap
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from sightline.errors import ConfigError, printable

if TYPE_CHECKING:  # help need not wait for rich
    from rich.console import Console

NUMBERS = {int: ("N", "a whole number"), float: ("NUMBER", "a number")}
SILENT = (Parameter.empty, None, "", ())  # defaults that tell a reader nothing
HELP = ("-h", "--help")
COMMON = {  # what flags do that many commands have, where their docstrings do not say
    "device": "auto, cpu, cuda, cuda:1 or mps.",
    "dtype": "the numbers a new feature store holds; by default float16.",
    "json": "print one JSON object.",
    "model": "a model file, instead of the one that comes with Sightline.",
    "quiet": "print only errors, and JSON if it is asked for.",
    "ray": "let a Ray cluster, --threads CPUs a worker, look at the photos: auto, or its address (needs Ray).",
    "threads": "that the CPU computes with.",
}
SENTENCES = ("words", "sentence", "caption")  # positional parameters that are several words of a language
COLUMN = 24  # where the texts of the help begin


class Arg(NamedTuple):
    """How the command line shows a parameter, where its name and type do not tell."""

    metavar: str = ""
    name: str = ""
    short: str = ""  # such as -k
    choices: tuple[str, ...] = ()  # the values of a flag of several: a word that is none of them ends the list


# Parameters that many commands have.
ModelFile = Annotated[Path | None, Arg("FILE")]
Folder = Annotated[Path | None, Arg("DIR")]
RayAddress = Annotated[str | None, Arg("auto|ADDRESS")]


class Option(NamedTuple):
    """A parameter of a command, as the command line shows it."""

    parameter: Parameter
    type: Any  # without `| None`; of several values, that of each
    flags: tuple[str, ...]  # none of a positional one
    metavar: str | None  # none of a switch
    several: bool
    choices: tuple[str, ...] = ()

    @property
    def is_required(self) -> bool:
        """True if the command cannot be called without it. A list of positional words may be empty."""
        return self.parameter.default is Parameter.empty and not (self.several and not self.flags)

    def __str__(self) -> str:
        return " ".join(filter(None, (*self.flags[:1], self.metavar)))

    def value(self, words: Sequence[str], name: str) -> Any:
        if self.metavar is None:
            return self.parameter.default is not True
        if not self.several:
            return self._read(words[-1], name)
        values = [part for word in words for part in self.parts(word)] if self.flags else words
        if self.flags and not values:
            raise _refusal(f"{self.flags[0]} needs a value: {self}", name)
        return tuple(self._read(value, name) for value in values)

    def parts(self, word: str) -> list[str]:
        """The values in a word of a list: `bleu,cider` are two. A path with a comma is one, if there is such a file."""
        if self.type is Path and os.path.exists(word):  # noqa: PTH110 - any text may be a path
            return [word]
        return [part.strip() for part in word.split(",") if part.strip()]

    def goes_on(self, word: str, positional: Sequence[Option]) -> bool:
        """Whether a word after the first value is one more, where it may also be the first positional word."""
        if _is_flag(word) or word == "-":
            return False
        if self.choices:
            return all(part.lower() in self.choices for part in self.parts(word))
        if "=" in word and any("=" in str(option) for option in positional):  # KEY=VALUE
            return False
        return not (positional and self.type is str and looks_like_path(word))

    def _read(self, word: str, name: str) -> Any:
        shown = (self.flags or (self.parameter.name,))[0]
        if self.type is Path and not word:  # Path("") would be the current folder
            raise _refusal(
                f"{shown} is empty", name, "name a file or a folder (a variable of the shell may be unset); "
            )
        if get_origin(self.type) is Literal:
            *choices, last = get_args(self.type)
            if word in (*choices, last):
                return word
            raise _refusal(f"{shown} is {word!r}", name, f"choose {', '.join(choices)} or {last}; ")
        try:
            return self.type(word)
        except ValueError:
            raise _refusal(f"{shown} takes {NUMBERS[self.type][1]}, not {word!r}", name) from None


def looks_like_path(word: str) -> bool:
    """Whether a word is a file, a folder, an address or a pattern, rather than a name or a phrase.

    >>> [looks_like_path(word) for word in ("bleu", "red ball", "a-0.5", "photos/", "*.jpg", "cat.jpg", "s3://bucket")]
    [False, False, False, True, True, True, True]
    """
    return bool(re.search(r"[/\\*?\[]|\.[A-Za-z]\w*$", word)) or os.path.exists(word)  # noqa: PTH110 - any text may be a path


def options(function: Callable[..., Any]) -> list[Option]:
    """What a command takes.

    >>> def shrink(photo: Path, *, width: int | None = None, json: bool = False) -> None: ...
    >>> [str(option) for option in options(shrink)]
    ['PHOTO', '--width N', '--json']
    """
    hints = get_type_hints(function, include_extras=True)
    return [_option(parameter, hints[parameter.name]) for parameter in signature(function).parameters.values()]


def _option(parameter: Parameter, hint: Any) -> Option:
    plain, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    arg = next((note for note in notes if isinstance(note, Arg)), Arg())
    if get_origin(plain) in (Union, types.UnionType):
        (plain,) = (member for member in get_args(plain) if member is not type(None))
    several = get_origin(plain) is tuple
    kind = get_args(plain)[0] if several else plain
    word, flags = (arg.name or parameter.name).replace("_", "-"), tuple[str, ...]()
    if parameter.kind is Parameter.KEYWORD_ONLY:
        flags = (*filter(None, [arg.short]), f"--no-{word}" if parameter.default is True else f"--{word}")
    metavar = arg.metavar or _metavar(kind, word.upper(), bool(flags), several)
    if not flags and parameter.default is not Parameter.empty and not metavar.startswith("["):
        metavar = f"[{metavar}]"
    return Option(parameter, kind, flags, None if kind is bool else metavar, several, arg.choices)


def _metavar(kind: Any, word: str, flag: bool, several: bool) -> str:
    """How the value of an option is called: by its type where that tells more than its name."""
    if several:
        return f"{_metavar(kind, word.removesuffix('S'), flag, False)} …"
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if kind in NUMBERS:
        return NUMBERS[kind][0]
    return "PATH" if flag and kind is Path else word


def bind(function: Callable[..., Any], name: str, words: Sequence[str]) -> Callable[[], Any]:
    """The call of `sightline NAME WORDS…`. Words that do not fit raise a sentence; `--help` is printed, and exits."""
    by_name = {option.parameter.name: option for option in options(function)}
    if not set(HELP).isdisjoint(words):
        print("\n".join(_help(function, list(by_name.values()), name)))
        raise SystemExit(0)
    groups = _group(list(by_name.values()), name, words)
    missing = [str(option) for key, option in by_name.items() if option.is_required and key not in groups]
    if missing:
        raise _refusal(f"`sightline {name}` needs {' and '.join(missing)}", name)
    return functools.partial(function, **{key: by_name[key].value(group, name) for key, group in groups.items()})


def _group(known: Sequence[Option], name: str, words: Sequence[str]) -> dict[str, list[str]]:
    """The words of a command line by the parameter they belong to."""
    by_flag = {flag: option for option in known for flag in option.flags}
    positional = [option for option in known if not option.flags]
    groups: dict[str, list[str]] = {}
    loose: list[str] = []  # words of positional parameters
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if word == "--":  # what follows are no flags
            loose += rest
            break
        flag, equals, value = word.partition("=")
        option = by_flag.get(flag.replace("_", "-"))
        if option is None:
            if word.startswith("--"):
                flags = [known_flag[2:] for known_flag in (*by_flag, "--help") if known_flag.startswith("--")]
                near = difflib.get_close_matches(flag[2:], flags, n=1)
                hint = f"did you mean --{near[0]}? " if near else ""
                raise _refusal(f"`sightline {name}` has no {flag}", name, hint)
            if _is_flag(word):
                hint = f"write ./{word}, if it is a file; " if looks_like_path(word) else ""
                raise _refusal(f"`sightline {name}` does not know what to do with {word!r}", name, hint)
            loose.append(word)
            continue
        group = groups.setdefault(option.parameter.name, [])
        if option.metavar is None and equals:
            raise _refusal(f"{flag} takes no value", name)
        if option.metavar is None or equals:
            group.append(value)
            continue
        if not rest or rest[0].startswith("--") or rest[0] in by_flag:
            raise _refusal(f"{flag} needs a value: {option}", name)
        if _is_flag(rest[0]):
            hint = f"write {flag}={rest[0]}, if it is the value of {flag}; "
            raise _refusal(f"{rest[0]} looks like a flag", name, hint)
        group.append(rest.popleft())
        while option.several and rest and option.goes_on(rest[0], positional):
            group.append(rest.popleft())
    given = loose
    for option in positional:
        if loose or option.several:
            count = len(loose) if option.several else 1
            groups[option.parameter.name], loose = loose[:count], loose[count:]
    if loose:
        hint = _hint_of_more(name, positional, given)
        raise _refusal(f"`sightline {name}` does not know what to do with {loose[0]!r}", name, hint)
    return groups


def _hint_of_more(name: str, positional: Sequence[Option], given: Sequence[str]) -> str:
    """What somebody meant who gave more words than a command takes: most likely a sentence without quotes."""
    last = positional[-1].parameter.name if positional else ""
    if last == "folder":
        return "name one folder at a time; "
    if last not in SENTENCES:
        return ""
    first = len(positional) - 1
    words = [*map(shlex.quote, given[:first]), f'"{" ".join(given[first:])}"']
    return f"put the words in quotes: `sightline {name} {' '.join(words)}`; "


def _is_flag(word: str) -> bool:
    """Whether a word begins like a flag; a negative number does not."""
    return re.match(r"-[^\d.]", word) is not None


def _help(function: Callable[..., Any], known: Sequence[Option], name: str) -> Iterator[str]:
    """The lines of the help: what a docstring says before its arguments, then a paragraph for each of these."""
    width = min(shutil.get_terminal_size().columns, 120)
    about, _, arguments = cleandoc(function.__doc__ or "").partition("\nArgs:\n")
    texts = COMMON | dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE))
    positional = [option for option in known if not option.flags]
    yield " ".join(filter(None, [f"usage: sightline {name} [-h] [OPTIONS]", *map(str, positional)]))
    for part in about.rstrip().split("\n\n"):
        yield ""
        yield part if part.startswith(" ") else textwrap.fill(part, width)
    for title, group in (("arguments", positional), ("options", [option for option in known if option.flags])):
        if group:
            yield f"\n{title}:"
        for option in group:
            heads = [" ".join(filter(None, (flag, option.metavar))) for flag in option.flags] or [str(option)]
            default = option.parameter.default
            shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
            hint = "" if default in SILENT or isinstance(default, bool) else f" (default: {shown})"
            hint += " (several by commas or spaces)" if option.several and option.flags else ""
            text = re.sub(r"\s+", " ", texts.get(option.parameter.name, "")) + hint
            yield from _row(", ".join(heads), text, width)
    yield from _row("-h, --help", "show this, and exit", width)


def _row(head: str, text: str, width: int) -> Iterator[str]:
    lines = textwrap.wrap(text, width - COLUMN) or [""]
    if len(head) > COLUMN - 4:
        yield f"  {head}"
        head = ""
    for line in lines:
        yield f"  {head:<{COLUMN - 2}}{line}".rstrip()
        head = ""


def _refusal(what: str, name: str, hint: str = "") -> ConfigError:
    return ConfigError(what, fix=f"{hint}`sightline {name} --help` tells how")


def show(value: Any, text: str | Callable[[], object], *, json: bool, quiet: bool, indent: int | None = None) -> None:
    """Print `value` as JSON, or the text; a text that takes work is a function that prints it."""
    if json:
        print(json_module.dumps(value, ensure_ascii=False, indent=indent), flush=True)
    elif not quiet:
        print(text, flush=True) if isinstance(text, str) else text()


def plain_console() -> Console:
    """A console that prints texts as they are: what stands in brackets is no markup, and `:cat:` no picture."""
    from rich.console import Console

    return Console(soft_wrap=True, markup=False, emoji=False, highlight=False)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns under their heads: the first to the left, numbers to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(printable(head), justify="right" if place else "left")
    for row in rows:
        table.add_row(*map(printable, row))
    plain_console().print(table)
