"""Where a pickle ends, found without running it; one that would take memory for nothing is refused.

Python's unpickler keeps a table of the objects it has made, as long as the largest place that the pickle names in it:
a hundred bytes that name place 800,000,000 cost 12 GB. A pickle of n bytes makes fewer than n objects.
"""

from __future__ import annotations

import functools
import pickle
import re
from typing import IO

_WINDOW = 1 << 16  # bytes looked at first; a pickle may be followed by gigabytes of tensors
_COUNT_BYTES = {  # operations followed by a count and so many bytes: by the bytes of the count
    **dict.fromkeys(b"UC\x8a\x8c", 1),
    **dict.fromkeys(b"TXB\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}
_STOP = ord(".")


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
