"""Pickles from strangers, without running them: only the classes named are made, everything else is refused.

A pickle is a program that may call any function. Here a name is looked up in `allowed` and nowhere else, so that the
worst a hostile file can do is to be refused.

A pickle can also cost memory or time for nothing, so it is scanned before it is run. Python's unpickler keeps a table
of the objects it has made, as long as the largest place that the pickle names in it: a hundred bytes that name place
800,000,000 cost 12 GB. A pickle of n bytes makes fewer than n objects. And a key is hashed: a tuple of the same tuple
twice, forty times over, is a hundred bytes whose hash takes hours, and one a million deep ends Python.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import numpy as np

from sightline.errors import DataError, TruncatedError
from sightline.files import PathLike, open_bytes

_WINDOW = 1 << 16  # bytes looked at first; a pickle may be followed by gigabytes of tensors
_AHEAD = 64  # more than any operation but a text has
_MOST_TUPLES = 1000  # that a tuple may hold; keys of what we read hold none


def describe_value(value: object) -> str:
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
            raise pickle.UnpicklingError(f"a number of type {describe_value(name)}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1] if len(state) > 1 and isinstance(state[1], str) else ""
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"a byte order {describe_value(order)}")
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
            raise pickle.UnpicklingError(f"it makes a {describe_value(kind)} from a {describe_value(base)}")
        return kind()


class _Bytes(metaclass=_Sealed):
    """How Python 3 writes bytes in protocols that know only text: `_codecs.encode(text, "latin1")`, or `bytes()`."""

    def __new__(cls, text: str = "", encoding: str = "latin1") -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError(f"it encodes as {describe_value(encoding)}")
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
    def __init__(self, file: IO[bytes], allowed: Mapping[str, type]) -> None:
        super().__init__(file, encoding="latin1")
        self._allowed = {**_PROTOCOL, **allowed}

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside itself")

    def find_class(self, module: str, name: str) -> type:
        found = self._allowed.get(f"{module}.{name}") or self._allowed.get(name)
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return found


def load(file: IO[bytes], allowed: Mapping[str, type] = CONTAINERS, where: PathLike | None = None) -> Any:
    """Read one pickle, making only the classes in `allowed`; anything else in it is a DataError.

    Args:
        file: the pickle; Python 2's are read too, their byte strings as latin-1.
        allowed: `module.name` to the class to use for it, or a bare `Name` for a class of that name in any module.
            Give an `Inert` subclass for anything that is not a container.
        where: the file's name, for messages.
    """
    name = where or getattr(file, "name", None)
    try:
        return _Unpickler(io.BytesIO(whole_pickle(file)), allowed).load()
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
    """The pickle that begins where `file` is, and the file after it. A damaged one is cut where the damage begins.

    The stack and the memo of the unpickler are followed with a number for each value: how many tuples it holds, those
    in its tuples included and each counted as often as it is reached.
    """
    begin, data = file.tell(), file.read(_WINDOW)
    stack: list[int] = []
    marks: list[int] = []
    memo: dict[int, int] = {}
    at, start, size = 0, 0, len(data)
    try:
        while True:
            if size - at < _AHEAD and (more := file.read(3 * size)):
                data += more
                size = len(data)
            operation, start = data[at], at + 1
            width = _WIDTHS[operation]
            at = start + width if width >= 0 else _past(data, start, _EFFECTS[operation])
            if at > size and (more := file.read(at)):  # a long text
                data, at = data + more, start - 1
                size = len(data)
            elif operation in _GET:
                stack.append(memo[int.from_bytes(data[start:at], "little") if width > 0 else int(data[start:at])])
            elif operation in _PUT:
                place = len(memo)  # of MEMOIZE
                if width:
                    place = int.from_bytes(data[start:at], "little") if width > 0 else int(data[start:at])
                if place > size:
                    raise pickle.UnpicklingError(f"it names a place in its memo that no pickle of {size:,} bytes fills")
                memo[place] = stack[-1]
            elif operation in _CONSTANTS:
                stack.append(0)
            elif operation == _MARK:
                marks.append(len(stack))
            elif operation == _DUP:
                stack.append(stack[-1])
            elif operation == _POP and marks and marks[-1] == len(stack):
                marks.pop()
            else:
                _, _, _, to_mark, pops, pushes = _EFFECTS[operation]
                bottom = (marks.pop() if to_mark else len(stack)) - pops
                if operation == _STOP or bottom < (marks[-1] if marks else 0):  # too few: the unpickler stops as well
                    break
                if pushes:
                    held = stack[bottom:]
                    stack[bottom:] = [1 + sum(held) if operation in _TUPLES else max(held, default=0)]
                    if stack[-1] > _MOST_TUPLES:
                        raise pickle.UnpicklingError(f"it holds more than {_MOST_TUPLES:,} tuples in a tuple")
                else:
                    del stack[bottom:]
    except (IndexError, KeyError, ValueError):  # cut, no operation, or nothing there: the unpickler stops here as well
        at = max(at, start)
    file.seek(begin + min(at, size))
    return data[:at]


class _Effect(NamedTuple):
    """What an operation takes: bytes of its argument, or of the count before it, or lines; and values of the stack."""

    width: int
    prefix: int
    lines: int
    to_mark: bool
    pops: int
    pushes: bool


def _effect(operation: pickletools.OpcodeInfo) -> _Effect:
    width = 0 if operation.arg is None else operation.arg.n
    lines = 0 if width != pickletools.UP_TO_NEWLINE else 2 if operation.name in ("GLOBAL", "INST") else 1
    before = operation.stack_before
    to_mark = pickletools.markobject in before
    pops = before.index(pickletools.markobject) if to_mark else len(before)
    count = {-2: 1, -3: 4, -4: 4, -5: 8}.get(width, 0)  # pickletools' TAKEN_FROM_ARGUMENT1, 4, 4U and 8U
    return _Effect(max(0, width), count, lines, to_mark, pops, bool(operation.stack_after))


def _past(data: bytes, at: int, effect: _Effect) -> int:
    """The end of the argument at `at`; beyond the data where it is cut."""
    if effect.prefix:
        at += effect.prefix + int.from_bytes(data[at : at + effect.prefix], "little")
    for _ in range(effect.lines):
        at = data.find(b"\n", at) + 1 or len(data) + 1
    return at


_EFFECTS = {ord(operation.code): _effect(operation) for operation in pickletools.opcodes}
_CODES = {operation.name: ord(operation.code) for operation in pickletools.opcodes}
_STOP, _MARK, _POP, _DUP = (_CODES[name] for name in ("STOP", "MARK", "POP", "DUP"))
_WIDTHS = {code: -1 if one.prefix or one.lines else one.width for code, one in _EFFECTS.items()}
_CONSTANTS = {code for code, one in _EFFECTS.items() if one.pushes and not one.pops and not one.to_mark} - {*b"()"}
_GET = {_CODES[name] for name in ("GET", "BINGET", "LONG_BINGET")}
_PUT = {_CODES[name] for name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")}
_TUPLES = {_CODES[name] for name in ("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET")}
