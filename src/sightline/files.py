"""Files that are never half-written: atomic replace, checksums, locks; and reading text with clear errors."""

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import shlex
import signal
import stat
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from sightline.errors import CheckpointError, ConfigError, DataError, NameTooLongError, TruncatedError

PathLike = str | os.PathLike[str]
SMALL = 16 << 20  # bytes that any file may declare or unpack to, however small it is itself
RATIO = 40  # beyond that, how many times its size: text and features pack to a fifth or a tenth, a bomb to a thousandth
MODEL = "model.safetensors"  # in the folder of a run that is done
RECIPE = "recipe.yaml"  # in the folder of a run, from its beginning on
COPY_AGAIN = "copy or download it again"
MAKE_ROOM = "make room there, or choose a folder you may write to"
AGAIN = "make room (or check the disk) and run the same command again: finished records are kept"
UNFINISHED = ".sightline-*.tmp"  # short, since the name of the file that it becomes may be as long as names can be


@contextlib.contextmanager
def atomic_write(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a temporary neighbour of `path` for writing bytes; on success it takes `path`'s place, on error it vanishes.

    A reader sees the old file or the new one, never a part, even if the machine stops in between. What a killed process
    leaves is removed by `sweep`.
    """
    target, file = Path(path), None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = _unfinished(target.parent)
        yield file
        file.flush()
        os.fsync(file.fileno())
        if os.name == "nt":  # which does not rename open files
            file.close()
        Path(file.name).replace(target)
        file.close()
        sync_folder(target.parent)
    except BaseException as error:
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                Path(file.name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise unwritable(target, error) from error
        raise


def _unfinished(folder: Path) -> IO[bytes]:
    """A new file in `folder` that is locked while it is open, by which `sweep` knows that somebody writes it."""
    while True:
        file = (folder / UNFINISHED.replace("*", secrets.token_hex(4))).open("xb")
        if os.name != "nt":
            with contextlib.suppress(OSError):  # on file systems without locks nothing is swept either
                _lock_file(file)
            if not os.fstat(file.fileno()).st_nlink:  # swept before it was locked
                file.close()
                continue
        return file


def sweep(folder: PathLike) -> None:
    """Remove the temporary files of processes that were killed while they wrote into `folder`."""
    if os.name == "nt":
        return
    for left in Path(folder).glob(UNFINISHED):
        with contextlib.suppress(OSError), left.open("rb") as file:
            _lock_file(file)  # fails where its writer is alive
            left.unlink()


def unwritable(path: PathLike, error: OSError, fix: str = MAKE_ROOM) -> DataError:
    """The error for a path that cannot be written: no space, no permission, no such disk, too long a name."""
    if error.errno == errno.ENAMETOOLONG:
        return NameTooLongError("the name of this file is too long to be written", where=path, fix="use a shorter name")
    return DataError(f"cannot write: {os.strerror(error.errno) if error.errno else error}", where=path, fix=fix)


def refuse_to_replace(target: PathLike, sources: Iterable[PathLike]) -> None:
    """Refuse to write to a file that is read as well, by whatever name or link; `sources` need not exist."""
    for source in sources:
        with contextlib.suppress(OSError):
            if os.path.samefile(os.path.realpath(target), source):  # noqa: PTH121 - any text may be a path
                raise ConfigError("this file is read, and would be replaced", where=target, fix="write to another file")


class AppendFile:
    """A file that grows by whole pieces: a write that fails half-way is cut off again."""

    def __init__(self, path: Path, end: int | None = None) -> None:
        """Open `path` for appending, cutting it to `end` bytes where given."""
        self.path = path
        self._file = path.open("ab", buffering=0)
        if end is not None:
            self._file.truncate(end)
        self.end = self._file.seek(0, os.SEEK_END)

    def append(self, data: bytes) -> int:
        """Write `data` and return the offset it starts at."""
        start, rest = self.end, memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except BaseException as error:
            self._file.truncate(start)
            if isinstance(error, OSError):
                raise unwritable(self.path, error, AGAIN) from error
            raise
        self.end = start + len(data)
        return start

    def sync(self) -> None:
        """Wait until the disk holds what was appended; a DataError where the file was deleted meanwhile."""
        try:
            os.fsync(self._file.fileno())
            links = os.fstat(self._file.fileno()).st_nlink
        except OSError as error:
            raise unwritable(self.path, error, AGAIN) from error
        if not links:
            what = "this was deleted while it was written to"
            raise DataError(what, where=self.path, fix="run the same command again")

    def close(self) -> None:
        self._file.close()


def write_text(path: PathLike, text: str) -> None:
    """Write `text` as UTF-8, atomically; gzipped where the name ends in `.gz`."""
    raw = text.encode("utf-8")
    with atomic_write(path) as file:
        file.write(gzip.compress(raw, mtime=0) if Path(path).suffix == ".gz" else raw)


def write_json(path: PathLike, value: Any, indent: int | None = None) -> None:
    """Write `value` as UTF-8 JSON, atomically. NaN is refused: it is not JSON."""
    write_text(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n")


def sync_folder(folder: PathLike) -> None:
    """Make a rename inside `folder` durable, where the system can."""
    with contextlib.suppress(OSError):  # Windows cannot open folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def checksum(data: bytes | memoryview) -> int:
    """CRC-32 of `data`: fast enough for every record, and enough to notice damage (not to resist an attacker)."""
    return zlib.crc32(data)


def fingerprint(*parts: bytes | str) -> str:
    """A short stable name (16 hex digits) for what made something: weights, settings, rules."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        raw = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


@contextlib.contextmanager
def hold_interrupts() -> Iterator[None]:
    """What is inside is done whole: Ctrl-C and SIGTERM wait for its end. The second of them acts at once.

    Only the main thread is ever interrupted; in others this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)}

    def wait(number: int, _frame: object) -> None:
        waiting.append(number)
        if len(waiting) > 1:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, wait)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if len(waiting) == 1:
            signal.raise_signal(waiting[0])


@contextlib.contextmanager
def lock(path: PathLike) -> Iterator[None]:
    """Hold `path` as an exclusive lock; a second holder gets a DataError at once. A killed process releases it."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        opened = target.open("a+b")
    except OSError as error:
        raise unwritable(target.parent, error) from error
    with opened as file:
        try:
            _lock_file(file)
        except OSError as error:
            fix = "wait for it to finish, or stop it, then run the command again"
            raise DataError("another process is writing here", where=target.parent, fix=fix) from error
        yield


def _lock_file(file: IO[bytes]) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def cache_dir() -> Path:
    """The user's cache folder for Sightline: `SIGHTLINE_CACHE`, else the system's place for caches."""
    if override := os.environ.get("SIGHTLINE_CACHE"):
        return Path(override)
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "sightline"


def existing_path(path: PathLike) -> Path:
    """`path` as a Path, or a DataError that names the nearest existing parent."""
    target = Path(path)
    if target.exists():
        return target
    parent = next((p for p in target.parents if p.exists()), Path.cwd())
    there = "" if parent == Path() else f"; {parent} exists"
    raise DataError("no such file or folder", where=target, fix=f"check the name{there}")


def model_file(path: PathLike) -> Path:
    """The model of a training run, where `path` is its folder; else `path`. An error where the run has no model yet."""
    folder = Path(path)
    if not folder.is_dir():
        return folder
    if (folder / MODEL).is_file():
        return folder / MODEL
    if (folder / RECIPE).is_file():
        fix = f"let it finish, or go on where it was stopped: `sightline train {shlex.quote(str(folder / RECIPE))}`"
        raise CheckpointError("this run is not finished", where=folder, fix=fix)
    raise CheckpointError("this folder holds no model", where=folder, fix="give a model file, or the folder of a run")


def most_bytes(stored: int) -> int:
    """The most bytes that a file of `stored` bytes may declare or unpack to: a small file must not cost gigabytes."""
    return SMALL + RATIO * stored


def check_declared_size(declared: int, stored: int, what: str) -> None:
    """Refuse an array that declares far more bytes than are stored for it, before any memory is taken."""
    if declared > most_bytes(stored):
        many = f"{declared:,}" if declared < 10**30 else "countless"
        fix = "only use files you trust; if this is one, store the array without compression"
        raise DataError(f"{what} declares {many} bytes, and {stored:,} are stored for it", fix=fix)


class _Unpacked(io.RawIOBase):
    """What a gzip file unpacks to, as long as that is not far more than the file is."""

    def __init__(self, packed: gzip.GzipFile, stored: int, where: Path) -> None:
        self._packed, self._stored, self._where = packed, stored, where

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._packed.readinto(buffer)
        if self._packed.tell() > most_bytes(self._stored):
            what = f"it unpacks to more than {most_bytes(self._stored):,} bytes, and has {self._stored:,} itself"
            fix = "only use files you trust; if this is one, unpack it with `gunzip` first"
            raise DataError(what, where=self._where, fix=fix)
        return count

    def readall(self) -> bytes:
        """All that is left, in large pieces."""
        return b"".join(iter(lambda: self.read(1 << 20) or b"", b""))

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._packed.seek(offset, whence)

    def tell(self) -> int:
        return self._packed.tell()


def refuse_special(path: Path) -> None:
    """Refuse a pipe or device that lies in a folder: reading it may never end. `<(command)` of a shell is in /dev."""
    if not stat.S_ISREG(path.stat().st_mode) and not str(path).startswith(("/dev/", "/proc/")):
        raise DataError("this is no ordinary file", where=path, fix="save what it gives to a file first")


@contextlib.contextmanager
def open_bytes(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, gunzipping what is gzip; a cut gzip stream is a TruncatedError."""
    target = existing_path(path)
    if target.is_dir():
        raise DataError("this is a folder, a file was expected", where=target, fix="name a file inside it")
    refuse_special(target)
    try:
        with target.open("rb") as raw:
            if raw.peek(2)[:2] == b"\x1f\x8b" or target.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    stored = os.fstat(raw.fileno()).st_size
                    yield cast(IO[bytes], io.BufferedReader(_Unpacked(unpacked, stored, target)))
            else:
                yield raw
    except (EOFError, zlib.error) as error:
        raise TruncatedError("the gzip stream ends too early", where=target, fix=COPY_AGAIN) from error
    except gzip.BadGzipFile as error:
        fix = "rename it without .gz, or download it again"
        raise DataError("this is not a gzip file", where=target, fix=fix) from error
    except PermissionError as error:
        raise DataError("no permission to read it", where=target, fix="change its permissions") from error


@contextlib.contextmanager
def open_text(path: PathLike) -> Iterator[IO[str]]:
    """Open UTF-8 text (a byte-order mark is skipped, `.gz` is gunzipped); other encodings are a DataError."""
    with open_bytes(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig") as text:
        try:
            yield text
        except UnicodeDecodeError as error:
            bad = bytes(error.object[error.start : error.end])
            what = f"not UTF-8 text: the bytes {bad!r} are no character ({error.reason})"
            fix = "convert it first, for example with `iconv -f latin1 -t utf-8`"
            raise DataError(what, where=path, fix=fix) from error


def read_json(path: PathLike) -> Any:
    """Read a JSON file (`.gz` too)."""
    with open_text(path) as file:
        return parse_json(file.read(), path)


def parse_json(text: str, where: PathLike) -> Any:
    """The value of a JSON text; a syntax error names its place in the text, an early end is a TruncatedError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = _place(text, error.pos)
        whole = error.pos == 0 or error.msg.startswith("Extra data")  # what follows a value was not cut
        begun = not whole and re.fullmatch(r"[-+.\w]*\s*", text[error.pos :])  # a number or word, perhaps
        if begun or not text[error.pos :].strip() or "Unterminated" in error.msg:
            raise TruncatedError(f"the JSON ends too early ({place})", where=where, fix=COPY_AGAIN) from error
        raise DataError(f"not valid JSON: {error.msg} at {place}", where=where, fix="correct it there") from error
    except (RecursionError, ValueError) as error:
        why = describe_excess(error, text)
        raise DataError(f"this JSON cannot be read: {why}", where=where, fix="correct or remove it") from error


def describe_excess(error: Exception, text: str) -> str:
    """Why a parser gave up a text that may well be valid: its nesting, or a number of thousands of digits and where."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    most = sys.get_int_max_str_digits()
    number = re.search(rf"\d{{{most + 1}}}", text)
    if number is None:
        return str(error)
    return f"a number has more than {most:,} digits at {_place(text, number.start())}"


def _place(text: str, position: int) -> str:
    column = position - text.rfind("\n", 0, position)
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {column}" if "\n" in text.rstrip() else f"column {column}"
