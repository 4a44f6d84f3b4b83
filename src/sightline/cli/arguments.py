"""From the words of a command line to the call of a command's function, and what is said of words that do not fit."""

from __future__ import annotations

import difflib
import functools
import io
import re
import shutil
import sys
import textwrap
import types
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from inspect import Parameter, Signature, cleandoc, signature
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TextIO, Union, get_args, get_origin, get_type_hints

import tyro

from sightline.errors import ConfigError

NUMBERS = {int: ("N", "a whole number"), float: ("NUMBER", "a number")}
SILENT = (Parameter.empty, None, "", ())  # defaults that tell a reader nothing
HELP = ("-h", "--help")
ABOUT = "ABOUT"  # where in the help the docstring goes
CONFIG = (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)


class Option(NamedTuple):
    """A parameter of a command, as the command line shows it. Parameters that are not keyword-only are positional."""

    parameter: Parameter
    type: Any  # without `| None`
    flags: tuple[str, ...]  # none of a positional one
    metavar: str | None  # none of a switch
    notes: tuple[Any, ...]  # what the command itself says to tyro

    @property
    def is_required(self) -> bool:
        """Whether there is no call without it. A list of positional ones may be empty."""
        return self.parameter.default is Parameter.empty and (bool(self.flags) or get_origin(self.type) is not tuple)

    def __str__(self) -> str:
        return " ".join(filter(None, (*self.flags[:1], self.metavar)))


def options(function: Callable[..., Any]) -> list[Option]:
    """What a command takes.

    >>> def shrink(photo: Path, *, width: int | None = None, json: bool = False) -> None: ...
    >>> [str(option) for option in options(shrink)]
    ['PHOTO', '--width N', '--json']
    """
    hints = get_type_hints(function, include_extras=True)
    return [_option(parameter, hints[parameter.name]) for parameter in signature(function).parameters.values()]


def bound(function: Callable[..., Any], name: str, words: Sequence[str]) -> Callable[[], Any]:
    """The call of `sightline NAME WORDS…`. Words that do not fit raise a sentence; `--help` is printed, and exits."""
    known = options(function)
    shown = _as_shown(function, known, name)
    if not set(HELP).isdisjoint(words):
        print(_help(function, shown, name))
        raise SystemExit(0)
    _check(known, name, words)
    try:
        with redirect_stderr(io.StringIO()):  # what is wrong is said here, not in tyro's boxes
            call, left = tyro.cli(shown, args=words, config=CONFIG, return_unknown_args=True)
    except SystemExit:
        _missing([option for option in known if option.is_required and not option.flags], name)
    if left:
        _refuse(f"`sightline {name}` does not know what to do with {left[0]!r}", name)
    return call


def _as_shown(function: Callable[..., Any], known: list[Option], name: str) -> Callable[..., Callable[[], Any]]:
    """A function that looks to tyro as the command shall look in its help, and that makes the call for later."""

    def shown(*given: Any, **named: Any) -> Callable[[], Any]:
        return functools.partial(function, *given, **named)

    annotations = {option.parameter.name: _for_tyro(option, name) for option in known}
    parameters = [option.parameter.replace(annotation=annotations[option.parameter.name]) for option in known]
    shown.__annotations__ = annotations
    shown.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    shown.__doc__ = re.sub(r"\n {8}", " ", cleandoc(function.__doc__ or ""))  # an argument's text is one paragraph
    return shown


class _Held(io.StringIO):
    """Holds back what is printed; to who asks it is like the stream that it stands for."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    def isatty(self) -> bool:
        return self.stream.isatty()


def _help(function: Callable[..., Any], shown: Callable[..., Any], name: str) -> str:
    """The help that tyro makes, with the docstring's own lines and without rows that are empty."""
    with redirect_stdout(page := _Held(sys.stdout)), suppress(SystemExit):
        tyro.cli(shown, prog=f"sightline {name}", description=ABOUT, args=["--help"], config=CONFIG)
    rows = page.getvalue().rstrip().splitlines()
    full = [row for row in rows if not re.fullmatch(r"│\s*│", re.sub(r"\x1b\[[0-9;]*m", "", row))]
    return "\n".join(full).replace(ABOUT, _about(function.__doc__ or ""))


def _about(text: str) -> str:
    """What a docstring says before its arguments: paragraphs as wide as the terminal, examples line by line."""
    width = min(shutil.get_terminal_size().columns, 120)
    parts = cleandoc(text).partition("\nArgs:")[0].rstrip().split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else textwrap.fill(part, width) for part in parts)


def _option(parameter: Parameter, hint: Any) -> Option:
    plain, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(plain) in (Union, types.UnionType):
        (plain,) = (one for one in get_args(plain) if one is not type(None))
    said = {key: getattr(note, key) for note in notes for key in ("name", "aliases", "metavar") if hasattr(note, key)}
    word = (said.get("name") or parameter.name).replace("_", "-")
    flags: tuple[str, ...] = ()
    if parameter.kind is Parameter.KEYWORD_ONLY:
        flags = (*(said.get("aliases") or ()), f"--no-{word}" if parameter.default is True else f"--{word}")
    metavar = said.get("metavar") or _metavar(plain, word.upper(), bool(flags))
    if not flags and parameter.default is not Parameter.empty and not metavar.startswith("["):
        metavar = f"[{metavar}]"
    return Option(parameter, plain, flags, None if plain is bool else metavar, tuple(notes))


def _metavar(plain: Any, word: str, flag: bool) -> str:
    """How the value of an option is called: by its type where that tells more than its name."""
    if get_origin(plain) is tuple:
        return f"{_metavar(get_args(plain)[0], word.removesuffix('S'), flag)} …"
    if get_origin(plain) is Literal:
        return "|".join(get_args(plain))
    if plain in NUMBERS:
        return NUMBERS[plain][0]
    return "PATH" if flag and plain is Path else word


def _for_tyro(option: Option, name: str) -> Any:
    """The annotation that makes tyro show an option as it is here, and leave what is wrong with a value to us."""
    default, shown = option.parameter.default, option.notes
    hint = "" if default in SILENT or isinstance(default, bool) else f"(default: {default})"
    if tyro.conf.UseAppendAction in option.notes:
        hint = "(repeatable)"
    shown += (tyro.conf.arg(metavar=option.metavar, help_behavior_hint=hint),)
    if not option.flags:
        shown += (tyro.conf.Positional,)
    if get_origin(option.type) is Literal or option.type in NUMBERS:
        shown += (_spec(option, name),)
    return Annotated[(option.type | None if default is None else option.type, *shown)]


def _spec(option: Option, name: str) -> tyro.constructors.PrimitiveConstructorSpec[Any]:
    """How a number or a choice is read."""

    def read(words: list[str]) -> Any:
        if get_origin(option.type) is Literal:
            if words[0] in get_args(option.type):
                return words[0]
            wanted = " or ".join(get_args(option.type))
        else:
            try:
                return option.type(words[0])
            except ValueError:
                wanted = NUMBERS[option.type][1]
        _refuse(f"{(option.flags or (option.parameter.name,))[0]} takes {wanted}, not {words[0]!r}", name)

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=option.metavar or "",
        instance_from_str=read,
        is_instance=lambda _: True,
        str_from_instance=lambda value: [str(value)],
    )


def _check(known: list[Option], name: str, words: Sequence[str]) -> None:
    """Refuse flags that there are not, flags without their value, and a command without the flags it needs."""
    by_flag = {flag: option for option in known for flag in option.flags}
    words = words[: words.index("--")] if "--" in words else words  # what follows are no flags
    given = set()
    for word, after in pairwise([*words, "--"]):
        flag, equals, _ = word.partition("=")
        flag = flag.replace("_", "-")
        if flag not in by_flag:
            if word.startswith("--"):
                near = difflib.get_close_matches(flag, [*by_flag, "--help"], n=1)
                _refuse(f"`sightline {name}` has no {flag}", name, f"did you mean {near[0]}? " if near else "")
            continue
        given.add(flag)
        if by_flag[flag].metavar and not equals and (after.startswith("--") or after in by_flag):
            _refuse(f"{flag} needs a value: {by_flag[flag]}", name)
        if by_flag[flag].metavar and not equals and re.match(r"-[^\d.]", after):
            _refuse(f"{after} looks like a flag", name, f"write {flag}={after}, if it is the value of {flag}; ")
        if equals and not by_flag[flag].metavar:
            _refuse(f"{flag} takes no value", name)
    if missing := [
        option for option in known if option.flags and option.is_required and given.isdisjoint(option.flags)
    ]:
        _missing([option for option in known if option in missing or (option.is_required and not words)], name)


def _missing(missing: list[Option], name: str) -> NoReturn:
    if not missing:
        _refuse(f"`sightline {name}` does not understand these words", name)
    _refuse(f"`sightline {name}` needs {' and '.join(map(str, missing))}", name)


def _refuse(what: str, name: str, hint: str = "") -> NoReturn:
    raise ConfigError(what, fix=f"{hint}`sightline {name} --help` tells how")
