"""Changes of valid files at random: of bytes, of what is packed inside, of JSON values, of lines and numbers."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from sightline.files import checksum

ODD_NUMBERS = (0, 1, -1, 127, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 0.5, 1e308, float("nan"), 10**12, 10**30, 10**400, "", "x", "\x1b[2J", "\ud800"),
    *([], {}, [[]], {"": []}, ["x"], [None] * 3, {"kind": ["x"]}, [[1, 2, 3, 4]], "a" * 5000),
)


def mutation_for(name: str) -> Callable[[bytes, random.Random], bytes]:
    return mutate_text if name.endswith((".json", ".jsonl", ".txt", ".csv", ".xml")) else mutate_bytes


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Changes of bytes; of what is packed, two times in three of what is inside, so that its checksums are right."""
    if rng.random() < 2 / 3:
        with contextlib.suppress(OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile):
            if data.startswith(b"\x1f\x8b"):
                return gzip.compress(mutate_raw(gzip.decompress(data), rng))
            if data.startswith(b"PK\x03\x04"):
                return mutate_zip(data, rng)
            if data.startswith(b"\x89PNG"):
                return mutate_png(data, rng)
    return mutate_raw(data, rng)


def mutate_zip(data: bytes, rng: random.Random) -> bytes:
    """An archive with one member changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info: archive.read(info) for info in archive.infolist()}
    chosen, written = rng.choice(list(members)), io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for info, content in members.items():
            changed = mutate_raw(content, rng) if info is chosen else content
            archive.writestr(info.filename, changed, compress_type=info.compress_type)
    return written.getvalue()


def mutate_png(data: bytes, rng: random.Random) -> bytes:
    """A picture with one chunk changed."""
    chunks, at = list[tuple[bytes, bytes]](), 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    chosen = rng.randrange(len(chunks))
    parts = [data[:8]]
    for number, (kind, content) in enumerate(chunks):
        body = content
        if number == chosen and kind == b"IDAT":
            body = zlib.compress(mutate_raw(zlib.decompress(content), rng))
        elif number == chosen:
            body = mutate_raw(content, rng)
        parts += [struct.pack(">I", len(body)), kind, body, struct.pack(">I", zlib.crc32(kind + body))]
    return b"".join(parts)


def mutate_raw(data: bytes, rng: random.Random) -> bytes:
    """A few changes of bytes, of numbers that bytes may be, and of their order."""
    raw = bytearray(data)
    filled = [place for place, byte in enumerate(data[:65536]) if byte]  # much of an HDF5 file or LMDB is empty
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not raw:
            break
        at, size = rng.randrange(len(raw)), rng.choice((1, 2, 4, 8, 64))
        if filled and rng.random() < 0.7:
            at = min(len(raw) - 1, rng.choice(filled))
        what = rng.randrange(7)
        if what == 0:
            raw[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            raw[at : at + size] = rng.randbytes(size)
        elif what == 2:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice(ODD_NUMBERS) % (1 << 8 * width)
            raw[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
        elif what == 3:
            del raw[at : at + size]
        elif what == 4:
            other = rng.randrange(len(raw))
            raw[at:at] = raw[other : other + size * 4]
        elif what == 5:
            other = rng.randrange(len(raw))
            raw[at : at + size] = raw[other : other + size]
        else:
            del raw[at:]
    return bytes(raw)


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """Changes of bytes, or of JSON values, or of numbers and lines; gzipped now and then."""
    what, changed = rng.randrange(4), data
    if what == 0:
        changed = mutate_bytes(data, rng)
    elif what == 1:
        with contextlib.suppress(ValueError):
            changed = json.dumps(mutate_value(json.loads(data), rng)).encode()
    elif what == 2:
        pieces = [b"9" * rng.choice((9, 20, 400, 5000)), b"nan", b"-1", b"1e400", b"[x]", b"\x00", b"&a [*a]", b"\xff"]
        places = [i for i, byte in enumerate(data) if chr(byte).isdigit() or byte in b":,\t\n"]
        at = rng.choice(places or [0])
        changed = data[:at] + rng.choice(pieces) + data[at + rng.randrange(2) :]
    else:
        lines = data.split(b"\n")
        rng.shuffle(lines)
        changed = b"\n".join(lines * rng.choice((1, 2)))
    packed = gzip.compress(changed) if rng.random() < 0.05 else changed
    return mutate_bytes(packed, rng) if rng.random() < 0.1 else packed


def mutate_value(value: Any, rng: random.Random) -> Any:
    """JSON with one value replaced, dropped or doubled."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        copy = dict(value) if isinstance(value, dict) else list(value)
        if rng.random() < 0.1:
            del copy[key]
        elif isinstance(copy, list) and rng.random() < 0.1:
            copy.append(copy[key])
        else:
            copy[key] = mutate_value(value[key], rng)
        return copy
    return rng.choice(ODD_VALUES)


def mutate_sealed(data: bytes, rng: random.Random) -> bytes:
    """Changes of bytes, or of the description with a checksum that is right again."""
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "x").write_bytes(data)
        with safe_open(path, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = json.loads(file.metadata()["sightline"])
        text = json.dumps(mutate_value(header, rng))
        with contextlib.suppress(UnicodeEncodeError):
            save_file(weights, path, {"sightline": text, "checksum": str(checksum(text.encode()))})
        return path.read_bytes()
