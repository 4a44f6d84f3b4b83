"""Pickles from strangers, without running them: only the classes named are made, everything else is refused.

A pickle is a program that may call any function. Here a name is looked up in `allowed` and nowhere else, so that the
worst a hostile file can do is to be refused.

A pickle can also cost memory or time for nothing. Python's unpickler in C keeps a table of the objects it has made, as
long as the largest place that the pickle names in it: a hundred bytes that name place 800,000,000 cost 12 GB; the one
in Python keeps a dict. And a key is hashed: a tuple of the same tuple twice, forty times over, is a hundred bytes whose
hash takes hours, one a million deep ends Python, and a long one is hashed whenever it is named as a key again.
"""

import io
import pickle
import re
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from sightline.errors import DataError, TruncatedError
from sightline.files import COPY_AGAIN, PathLike, open_bytes

_BROKEN = (AttributeError, ImportError, LookupError, TypeError, ValueError, MemoryError, OverflowError, RecursionError)
_MOST_VALUES = 1000  # in a tuple and the tuples in it; keys of what we read hold four, a state of Python's `random` 628


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


class _Unpickler(pickle._Unpickler):
    """Python's unpickler in Python, whose memo is a dict, so that a place in it that is never filled costs nothing."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]

    def __init__(self, data: bytes, allowed: Mapping[str, type]) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._allowed = {**_PROTOCOL, **allowed}
        # How many values there are in a tuple of tuples, by its id; the tuple itself keeps the id from coming again.
        self._nested: dict[int, tuple[int, object]] = {}

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside itself")

    def find_class(self, module: str, name: str) -> type:
        kind = self._allowed.get(f"{module}.{name}") or self._allowed.get(name)
        if kind is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return kind

    def check_tuple(self) -> None:
        """Refuse the tuple or frozenset on top of the stack if it holds too many values, each as often as reached."""
        value = self.stack[-1]
        inner = [member for member in value if isinstance(member, tuple | frozenset)]
        count = len(value) + sum(self._nested.get(id(member), (len(member), None))[0] for member in inner)
        if count > _MOST_VALUES:
            raise pickle.UnpicklingError(f"it holds more than {_MOST_VALUES:,} values in a tuple")
        if inner:
            self._nested[id(value)] = count, value


def _checked(load: Callable[[Any], None]) -> Callable[[Any], None]:
    def load_and_check(unpickler: _Unpickler) -> None:
        load(unpickler)
        unpickler.check_tuple()

    return load_and_check


def _refused(what: str) -> Callable[[Any], None]:
    def refuse(unpickler: _Unpickler) -> None:
        raise pickle.UnpicklingError(what)

    return refuse


for _code in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.FROZENSET):
    _Unpickler.dispatch[_code[0]] = _checked(_Unpickler.dispatch[_code[0]])
# Memory for a bytearray is taken before the file's size is known; a number is hashed anew whenever it is a key.
_Unpickler.dispatch[pickle.BYTEARRAY8[0]] = _refused("it holds a bytearray")
_Unpickler.dispatch[pickle.LONG4[0]] = _refused("it holds a number of more than 255 bytes")


def load(data: bytes, allowed: Mapping[str, type] = CONTAINERS, where: PathLike | None = None) -> Any:
    """Read one pickle, making only the classes in `allowed`; anything else in it is a DataError.

    Args:
        data: the pickle; Python 2's are read too, their byte strings as latin-1.
        allowed: `module.name` to the class to use for it, or a bare `Name` for a class of that name in any module.
            Give an `Inert` subclass for anything that is not a container.
        where: the file's name, for messages.
    """
    try:
        return _Unpickler(data, allowed).load()
    except (EOFError, struct.error) as error:
        raise TruncatedError("the pickle ends too early", where=where, fix=COPY_AGAIN) from error
    except pickle.UnpicklingError as error:
        if "exhausted" in str(error):
            raise TruncatedError("the pickle ends too early", where=where, fix=COPY_AGAIN) from error
        raise DataError(f"the pickle is refused: {error}", where=where, fix="only use files you trust") from error
    except _BROKEN as error:
        raise DataError(f"not a readable pickle: {error}", where=where, fix=COPY_AGAIN) from error


def load_path(path: PathLike, allowed: Mapping[str, type] = CONTAINERS) -> Any:
    """`load` for a file on disk (`.gz` too)."""
    with open_bytes(path) as file:
        return load(file.read(), allowed, path)
