"""Pickles from strangers, without running them: only the classes named are made, everything else is refused.

A pickle is a program that may call any function. Here a name is looked up in `allowed` and nowhere else, so that the
worst a hostile file can do is to be refused.

A pickle can also cost memory or time for nothing, so it is scanned before it is run. Python's unpickler keeps a table
of the objects it has made, as long as the largest place that the pickle names in it: a hundred bytes that name place
800,000,000 cost 12 GB. A pickle of n bytes makes fewer than n objects.
"""

from __future__ import annotations

import functools
import io
import pickle
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from sightline.errors import DataError, TruncatedError
from sightline.files import PathLike, open_bytes

_WINDOW = 1 << 16  # bytes looked at first; a pickle may be followed by gigabytes of tensors
_COUNT_BYTES = {  # operations followed by a count and so many bytes: by the bytes of the count
    **dict.fromkeys(b"UC\x8a\x8c", 1),
    **dict.fromkeys(b"TXB\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}
_STOP = ord(".")


def shown(value: object) -> str:
    """A value of a pickle, for messages: a short text or number, else its class. A few bytes can hold lists in lists
    in lists whose `repr` never ends.
    """
    if isinstance(value, str | bytes):
        return f"{value[:60]!r}"
    if isinstance(value, int) and value.bit_length() < 256:
        return repr(value)
    return value.__name__ if isinstance(value, type) else f"a {type(value).__name__}"


class _Sealed(type):
    """Classes whose attributes a pickle cannot replace."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"it sets {name} of {cls.__name__}")


class Inert(metaclass=_Sealed):
    """What a pickled object becomes: its attributes, and none of its behaviour."""

    def __init__(self, *args: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise pickle.UnpicklingError(f"the state of a {type(self).__name__} is a {type(state).__name__}")
        self.__dict__.update(state)


class Namespace(Inert):
    """A pickled `argparse.Namespace`: options as attributes."""


class _Type(metaclass=_Sealed):
    """A pickled `numpy.dtype` of plain numbers."""

    def __init__(self, name: str = "", *_: object) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[fiu][1248]|b1", name):
            raise pickle.UnpicklingError(f"a number of type {shown(name)}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1] if len(state) > 1 and isinstance(state[1], str) else ""
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"a byte order {shown(order)}")
        self.dtype = self.dtype.newbyteorder(order)  # type: ignore[arg-type]


class _Scalar(metaclass=_Sealed):
    """A pickled numpy number, read as a Python one."""

    def __new__(cls, kind: _Type, raw: bytes | str = b"") -> Any:
        data = raw.encode("latin1") if isinstance(raw, str) else raw  # Python 2 pickled bytes as text
        if len(data) != kind.dtype.itemsize:
            raise pickle.UnpicklingError(f"a number of {len(data)} bytes")
        return np.frombuffer(data, dtype=kind.dtype)[0].item()


class _Object(metaclass=_Sealed):
    """How protocols 0 and 1 make an object: `copy_reg._reconstructor(class, object, None)`."""

    def __new__(cls, kind: type, base: object = None, state: object = None) -> Any:
        if not isinstance(kind, type) or not issubclass(kind, Inert) or base is not Inert:
            raise pickle.UnpicklingError(f"it makes a {shown(kind)} from a {shown(base)}")
        return kind()


class _Bytes(metaclass=_Sealed):
    """How Python 3 writes bytes in protocols that know only text: `_codecs.encode(text, "latin1")`, or `bytes()`."""

    def __new__(cls, text: str = "", encoding: str = "latin1") -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError(f"it encodes as {shown(encoding)}")
        return text.encode("latin1")


# Harmless names that data pickles use. A name without a dot stands for that class in any module.
CONTAINERS: dict[str, type] = {
    "collections.OrderedDict": OrderedDict,
    "collections.defaultdict": defaultdict,
    "argparse.Namespace": Namespace,
    **{f"{module}.{kind.__name__}": kind for module in ("builtins", "__builtin__") for kind in (int, float, set, list)},
}
NUMBERS: dict[str, type] = {
    "numpy.dtype": _Type,
    "numpy.core.multiarray.scalar": _Scalar,
    "numpy._core.multiarray.scalar": _Scalar,
}


_PROTOCOL: dict[str, type] = {
    "_codecs.encode": _Bytes,
    **{f"{module}._reconstructor": _Object for module in ("copyreg", "copy_reg")},
    **{f"{module}.object": Inert for module in ("builtins", "__builtin__")},
    **{f"{module}.bytes": _Bytes for module in ("builtins", "__builtin__")},
}


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: IO[bytes], allowed: Mapping[str, type], persistent: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__(file, encoding="latin1")
        self._allowed = {**_PROTOCOL, **allowed}
        self._persistent = persistent

    def persistent_load(self, pid: Any) -> Any:
        if self._persistent is None:
            raise pickle.UnpicklingError("it refers to something outside itself")
        return self._persistent(pid)

    def find_class(self, module: str, name: str) -> type:
        found = self._allowed.get(f"{module}.{name}") or self._allowed.get(name)
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return found


def load(
    file: IO[bytes],
    allowed: Mapping[str, type] = CONTAINERS,
    where: PathLike | None = None,
    persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """Read one pickle, making only the classes in `allowed`; anything else in it is a DataError.

    Args:
        file: the pickle; Python 2's are read too, their byte strings as latin-1.
        allowed: `module.name` to the class to use for it, or a bare `Name` for a class of that name in any module.
            Give an `Inert` subclass for anything that is not a container.
        where: the file's name, for messages.
        persistent: gives what a persistent id of the pickle stands for (PyTorch's storages); None refuses them.
    """
    name = where or getattr(file, "name", None)
    try:
        return _Unpickler(io.BytesIO(whole_pickle(file)), allowed, persistent).load()
    except EOFError as error:
        raise TruncatedError("the pickle ends too early", where=name, fix="copy or download it again") from error
    except pickle.UnpicklingError as error:
        if "truncated" in str(error):
            raise TruncatedError("the pickle ends too early", where=name, fix="copy or download it again") from error
        raise DataError(f"the pickle is refused: {error}", where=name, fix="only use files you trust") from error
    except (MemoryError, OverflowError) as error:  # a length or a place in the memo that no file has
        raise DataError(
            "the pickle asks for more memory than there is", where=name, fix="only use files you trust"
        ) from error
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"not a readable pickle: {error}", where=name, fix="copy or download it again") from error


def load_path(path: PathLike, allowed: Mapping[str, type] = CONTAINERS) -> Any:
    """`load` for a file on disk (`.gz` too)."""
    with open_bytes(path) as file:
        return load(file, allowed, path)


def whole_pickle(file: IO[bytes]) -> bytes:
    """The pickle that begins where `file` is, and the file after it. A damaged one is cut where the damage begins."""
    start, size = file.tell(), _WINDOW
    while True:
        file.seek(start)
        data = file.read(size)
        end = _end(data)
        if end < len(data) or len(data) < size:
            file.seek(start + end)
            return data[:end]
        size *= 4


def _end(data: bytes) -> int:
    """Just behind the STOP of a pickle, or the first byte that is no operation; all of `data` where it is cut."""
    run, at = _run(len(data)), 0
    while at < len(data):
        if data[at] == _STOP or data[at] not in _OPERATIONS:
            return at + 1
        found = run.match(data, at)
        at = found.end() if found is not None and found.end() > at else _past(data, at)
    return len(data)


def _past(data: bytes, at: int) -> int:
    """Past one operation that is counted, or cut, or refused."""
    operation = data[at]
    if size := _COUNT_BYTES.get(operation):
        count = int.from_bytes(data[at + 1 : at + 1 + size], "little")
        return min(len(data), at + 1 + size + count)
    line = data.find(b"\n", at)
    if (operation == ord("r") and at + 5 <= len(data)) or (operation == ord("p") and line >= 0):
        raise pickle.UnpicklingError(f"it names a place in its memo that no pickle of {len(data):,} bytes fills")
    return len(data)


@functools.lru_cache(maxsize=64)
def _run(most: int) -> re.Pattern[bytes]:
    """A run of operations whose length is plain, in which no place in the memo is far beyond `most`."""
    number = min(most, (1 << 32) - 1).to_bytes(4, "little")
    top = max((place for place in range(4) if number[place]), default=0)
    place = b"." * top + b"[\\x00-" + re.escape(number[top : top + 1]) + b"]" + b"\\x00" * (3 - top)
    kinds = (
        rb"[(012NRb\]})adelostuQ\x81\x85-\x89\x8f-\x94\x97\x98]",
        rb"[Khq\x80\x82].",
        rb"[M\x83]..",
        rb"[Jj\x84]....",
        rb"[G\x95]........",
        rb"[ILFSVPg][^\n]*\n",
        rb"[ci][^\n]*\n[^\n]*\n",
        b"r" + place,
        rb"p\d{1,%d}\n" % len(str(most)),
    )
    return re.compile(b"(?:" + b"|".join(kinds) + b"){0,1000}", re.DOTALL)


_OPERATIONS = frozenset(b"(012NRb]})adelostuQ\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98") | frozenset(
    b"Khq\x80\x82M\x83Jj\x84G\x95ILFSVPgcirp." + bytes(_COUNT_BYTES)
)
