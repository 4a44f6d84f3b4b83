"""One strict loader: YAML or plain data into a tree of dataclasses. A wrong key or type names the nearest valid one.

A choice between dataclasses is a union whose members have a `kind: Literal[...]` field: `model: {kind: updown, …}`.
"""

import dataclasses
import difflib
import itertools
import re
import reprlib
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

from sightline.errors import ConfigError, about
from sightline.files import PathLike, describe_excess, open_text

# What recipes called keys and kinds before, and what they are called now. Recipes with an old name are refused, and the
# error names the new one; checkpoints and folders of runs that were made before are read (`with_new_names`).
RENAMED = {"rate": "lr", "rates": "lrs", "way": "strategy"}
RENAMED_KINDS = {"looking": "detect-and-caption"}

T = TypeVar("T")

LONGEST = 1 << 20  # characters of a recipe; the longest that comes with Sightline has 20,000
LARGEST = 256  # bits of a whole number; Python refuses to print thousands of digits
MOST_VALUES = 100_000  # of a recipe, with all aliases written out: a page of aliases of aliases can stand for billions


BROKEN = (yaml.YAMLError, ArithmeticError, LookupError, ValueError, TypeError, RecursionError)  # what bad YAML raises


def load_yaml(path: PathLike) -> dict[str, Any]:
    """Read a YAML mapping; a syntax error names line and column, and a key given twice is refused."""
    with open_text(path) as file, about(path):
        text = file.read(LONGEST + 1)
        if len(text) > LONGEST:
            raise ConfigError(f"it is longer than {LONGEST:,} characters", fix="give a recipe, which is a page or two")
        try:
            value = yaml.load(text, _Loader)
        except BROKEN as error:
            mark = getattr(error, "problem_mark", None)
            place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            problem = getattr(error, "problem", None) or describe_excess(error, text).partition("\n")[0]
            raise ConfigError(f"not valid YAML: {problem}{place}", fix="correct it there") from error
        if not isinstance(value, dict):
            raise ConfigError("a mapping of keys to values was expected", fix="write `key: value` lines")
        return value


def _count_nodes(node: yaml.Node, counts: dict[int, int], above: set[int]) -> int:
    """How many values a node is once all aliases are written out; too many, or one in itself, is an error."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in above:
        raise yaml.MarkedYAMLError(problem="an alias stands inside what it stands for", problem_mark=node.start_mark)
    if id(node) not in counts:
        above.add(id(node))
        parts = itertools.chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
        counts[id(node)] = 1 + sum(_count_nodes(part, counts, above) for part in parts)
        above.remove(id(node))
    if counts[id(node)] > MOST_VALUES:
        problem = f"its aliases make more than {MOST_VALUES:,} values of it"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    return counts[id(node)]


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice and too many aliases, and reads 1e-4 as a number, as YAML 1.2 does."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _count_nodes(node, {}, set())
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in keys:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def build(kind: type[T], values: Mapping[str, Any], where: str | Path = "") -> T:
    """Build the dataclass `kind` from plain values, strictly."""
    with about(where):
        built: T = _build_dataclass(kind, values, "")
        return built


def override(values: dict[str, Any], assignments: typing.Sequence[str]) -> dict[str, Any]:
    """Apply `a.b.c=value` (the value is YAML) to nested plain values, giving new ones."""
    result = merge({}, values)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise ConfigError(f"{assignment!r} is not key=value", fix="write for example optimiser.lr=1e-4")
        try:
            value = yaml.load(text, _Loader)
        except BROKEN as error:
            raise ConfigError(f"the value of {path} is not valid: {text}", fix="quote it") from error
        for key in reversed(path.split(".")):
            value = {key: value}
        result = merge(result, value)
    return result


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, mapping by mapping; a mapping with another `kind` replaces the old one whole."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(value, Mapping):
            before = old if isinstance(old, Mapping) else {}
            same_kind = value.get("kind", before.get("kind")) == before.get("kind")
            value = merge(before if same_kind else {}, value)
        merged[key] = value
    return merged


def with_new_names(values: Any) -> Any:
    """Plain values that an older version saved, under the names of today."""
    return _renamed(values, RENAMED, RENAMED_KINDS)


def with_old_names(values: Any) -> Any:
    """The opposite: fingerprints are taken of the old names, so that they stay what they were."""
    return _renamed(values, {v: k for k, v in RENAMED.items()}, {v: k for k, v in RENAMED_KINDS.items()})


def _renamed(values: Any, keys: Mapping[str, str], kinds: Mapping[str, str]) -> Any:
    if isinstance(values, list | tuple):
        return [_renamed(value, keys, kinds) for value in values]
    if not isinstance(values, Mapping):
        return values
    return {
        keys.get(key, key): kinds.get(value, value) if key == "kind" else _renamed(value, keys, kinds)
        for key, value in values.items()
    }


def _build_dataclass(kind: Any, values: Any, path: str) -> Any:
    if not isinstance(values, Mapping):
        raise _wrong(path, f"a {kind.__name__} with keys", values)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for key in values:
        if key not in fields:
            hint = _suggestion(_join("", key), fields, RENAMED)
            raise ConfigError(f"unknown key `{_join(path, key)}`", fix=f"{hint}valid keys: {', '.join(fields)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise ConfigError(f"the key `{_join(path, name)}` is missing", fix="add it")
    arguments = {key: _build(hints[key], value, _join(path, key)) for key, value in values.items()}
    try:
        return kind(**arguments)
    except ConfigError as error:  # of the dataclass itself, which does not know where it stands
        place = f"in `{path}`, " if path and f"`{path}." not in error.what else ""
        raise ConfigError(f"{place}{error.what}", where=error.where, fix=error.fix) from error


def _suggestion(name: str, choices: Collection[str], renamed: Mapping[str, str]) -> str:
    """What somebody may have meant by a name that is none of the choices."""
    if renamed.get(name) in choices:
        return f"it is called `{renamed[name]}` now; "
    near = difflib.get_close_matches(name, list(choices), n=1)
    return f"did you mean `{near[0]}`? " if near else ""


def _no_choice(path: str, value: Any, choices: Iterable[Any], renamed: Mapping[str, str]) -> ConfigError:
    names = [str(choice) for choice in choices]
    hint = _suggestion(value if isinstance(value, str) and value in renamed else _shown(value), names, renamed)
    return ConfigError(f"`{path}` is {_shown(value)}", fix=f"{hint}choose one of {', '.join(names)}")


def _build(hint: Any, value: Any, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _build_union(arguments, value, path)
    if origin is Literal:
        if value in arguments and type(value) in {type(a) for a in arguments}:
            return value
        raise _no_choice(path, value, arguments, {})
    if origin in (tuple, list):
        return _build_sequence(origin, arguments, value, path)
    if origin is dict:
        if value is None:  # `data.splits=null` empties what a recipe has, to which `{}` would add nothing
            return {}
        if not isinstance(value, Mapping):
            raise _wrong(path, "a mapping", value)
        for key in value:
            if arguments[0] is str and not isinstance(key, str):
                raise ConfigError(f"the key {_shown(key)} of `{path}` is no text", fix=f'write it as "{_shown(key)}"')
        return {k: _build(arguments[1], v, _join(path, k)) for k, v in value.items()}
    if dataclasses.is_dataclass(hint):
        return _build_dataclass(hint, value, path)
    if hint is float and type(value) is int and abs(value) < 2**1023:  # beyond, no float has it
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if type(value) is not hint or (hint is int and value.bit_length() > LARGEST):
        raise _wrong(path, _name(hint), value)
    return value


def _build_union(members: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in members:
        return None
    members = tuple(member for member in members if member is not type(None))
    choices = {_kind(member): member for member in members if dataclasses.is_dataclass(member)}
    if isinstance(value, Mapping) and choices:
        if len(choices) == 1:
            return _build(next(iter(choices.values())), value, path)
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in choices:
            raise _no_choice(_join(path, "kind"), kind, choices, RENAMED_KINDS)
        return _build(choices[kind], value, path)
    for member in members:
        try:
            return _build(member, value, path)
        except ConfigError:
            continue
    raise _wrong(path, " or ".join(_name(member) for member in members), value)


def _build_sequence(origin: Any, arguments: tuple[Any, ...], value: Any, path: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _wrong(path, "a list", value)
    hints = arguments
    if origin is list or arguments[-1] is Ellipsis:
        hints = (arguments[0],) * len(value)
    elif len(value) != len(arguments):
        raise _wrong(path, f"a list of {len(arguments)}", value)
    return origin(_build(h, v, f"{path}[{i}]") for i, (h, v) in enumerate(zip(hints, value, strict=True)))


def _kind(member: Any) -> Any:
    hint = typing.get_type_hints(member).get("kind")
    return get_args(hint)[0] if get_origin(hint) is Literal else member.__name__


def _name(hint: Any) -> str:
    plain = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    return plain.get(hint, getattr(hint, "__name__", str(hint)))


def _wrong(path: str, expected: str, value: Any) -> ConfigError:
    return ConfigError(f"`{path or 'recipe'}` is {_shown(value)}", fix=f"give {expected}")


def _shown(value: object) -> str:
    """A value for messages: short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > LARGEST:
        return "a number of more than 70 digits"
    try:
        return reprlib.repr(value)
    except ValueError:
        return f"a {type(value).__name__}"


def _join(path: str, key: object) -> str:
    name = key if isinstance(key, str) else _shown(key)
    return f"{path}.{name}" if path else name


def check_config(config: Any, *, may_be_zero: tuple[str, ...] = ()) -> None:
    """Refuse choices that a Literal does not list, whole numbers below 1 (sizes and counts), and dropout of 1 or more.

    Args:
        config: the config of a model, a dataclass.
        may_be_zero: names of whole numbers that may be 0.
    """
    hints = typing.get_type_hints(type(config))
    for item in dataclasses.fields(config):
        name, value, hint = item.name, getattr(config, item.name), hints[item.name]
        least = 0 if name in may_be_zero else 1
        choices = typing.get_args(hint)
        if typing.get_origin(hint) is typing.Literal and value not in choices:
            raise ConfigError(f"`{name}` is {value!r}", fix=f"choose one of {', '.join(map(str, choices))}")
        if hint is int and (not isinstance(value, int) or value < least):
            raise ConfigError(f"`{name}` is {value}", fix=f"give a whole number of at least {least}")
        if name == "dropout" and not 0 <= value < 1:
            raise ConfigError(f"`{name}` is {value}", fix="give a share from 0 up to, not including, 1")


def check_ranges(config: object, where: str = "", **ranges: str) -> None:
    """Refuse numbers outside their ranges, which are written as in mathematics: `smoothing="[0, 0.5)", every="[1, ∞)"`.

    Args:
        config: a dataclass, or a mapping.
        where: what stands before a name in the error, such as `data.`
        ranges: name to its interval; not-a-number is in none.
    """
    values = config if isinstance(config, Mapping) else vars(config)
    for name, interval in ranges.items():
        low, high = interval[1:-1].split(", ")
        value, most = values[name], float(high.replace("∞", "inf"))
        least_holds = value >= float(low) if interval[0] == "[" else value > float(low)
        most_holds = value <= most if interval[-1] == "]" else value < most
        if not (least_holds and most_holds):
            fix = f"{low} or more" if interval[0] == "[" else f"more than {low}"
            fix += "" if high == "∞" else f", and {high} at most" if interval[-1] == "]" else f", and less than {high}"
            raise ConfigError(f"`{where}{name}` is {value}", fix=f"give {fix}")
