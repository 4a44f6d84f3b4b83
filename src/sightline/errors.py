"""One exception tree. Every message says what is wrong, where, and what to do next. And how sentences count things."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

# What acts on a terminal instead of being shown there: control characters, and those that end a line or turn the
# direction of text.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: object) -> str:
    """The text on one line, safe for a terminal: a file may be named by escape codes, or by several lines.

    >>> printable("cat\\x1b[2J.jpg")
    'cat\\\\x1b[2J.jpg'
    """
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), str(text))


class SightlineError(Exception):
    """Base of every error Sightline raises on purpose.

    Args:
        what: the problem, as a sentence without its full stop.
        where: the file, and the record in it, that has the problem.
        fix: what the reader can do about it.

    >>> print(DataError("caption 3 is empty", where="refs.json", fix="remove it or write one"))
    refs.json: caption 3 is empty. To fix: remove it or write one.
    """

    def __init__(self, what: str, *, where: str | os.PathLike[str] | None = None, fix: str | None = None) -> None:
        super().__init__(what, where, fix)
        self.what = what.rstrip(".")
        self.where = None if where is None else str(where)
        self.fix = None if fix is None else fix.rstrip(".")

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{head}. To fix: {self.fix}." if self.fix else f"{head}.")

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild through the keyword-only constructor, so that errors cross process borders whole."""
        return functools.partial(type(self), where=self.where, fix=self.fix), (self.what,)


@contextlib.contextmanager
def about(where: str | os.PathLike[str]) -> Iterator[None]:
    """Errors that are raised in here and name no place are about this one."""
    try:
        yield
    except SightlineError as error:
        error.where = error.where or str(where)
        raise


class ConfigError(SightlineError):
    """A recipe, option or argument that cannot be used."""


class ImageError(SightlineError):
    """A picture that cannot be decoded, or is unsafe to decode."""


class CheckpointError(SightlineError):
    """A model file that is damaged, foreign, or made for something else."""


class LearningError(SightlineError):
    """Training that cannot go on."""


class ClusterError(SightlineError):
    """Machines that do not answer, or do not do what they are asked."""


class MissingExtraError(SightlineError):
    """An optional part is not installed."""

    @classmethod
    def of(cls, module: str, extra: str, need: str) -> MissingExtraError:
        return cls(
            f"{need} needs the package {module}, which is not installed", fix=f"pip install 'sightline[{extra}]'"
        )


def library(module: str, extra: str, need: str) -> Any:
    """A module that comes with an extra; a MissingExtraError that tells what it is needed for."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError.of(module, extra, need) from error


class MissingPartError(SightlineError):
    """A scene lacks a part that a model needs."""


class DataError(SightlineError):
    """A data file that cannot be read as what it claims to be."""


class NameTooLongError(DataError):
    """A file that cannot be written because of its name alone: others can be written beside it."""


class UnknownFormatError(DataError):
    """A file or folder in no format Sightline knows."""


class TruncatedError(DataError):
    """A file or record that ends too early."""


class MissingRecordError(DataError):
    """An image id, caption or feature that one file names and another does not hold."""


class DuplicateRecordError(DataError):
    """An id that appears twice where it must be unique."""


class NonFiniteError(DataError):
    """A feature, score or box that is NaN or infinite."""


class CountError(DataError):
    """Two files, or two fields, that must agree in number and do not."""


class ByteStringError(DataError):
    """Captions that look like ``b'...'``: bytes that were turned to text with ``str()``."""


class BoxError(DataError):
    """Boxes in the wrong order, unit or range."""


class ChecksumError(DataError):
    """Stored bytes that are not the bytes that were written."""


def is_out_of_memory(error: BaseException) -> bool:
    """True where memory ended: Python's, the system's, that of a library being imported, or PyTorch's on a CPU.

    All but the first are recognised by their messages.
    """
    words = (
        *("can't allocate memory", "cannot allocate memory", "out of memory", "can't start new thread"),
        "failed to map segment from shared object",
    )
    return isinstance(error, MemoryError) or (
        isinstance(error, ImportError | OSError | RuntimeError) and any(word in str(error).lower() for word in words)
    )


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"


def plural(count: int, noun: str) -> str:
    """`1 photo`, `2 photos`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some(names: Sequence[str]) -> str:
    """The first five of some names."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
