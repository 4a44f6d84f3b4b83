"""Bottom-up attention TSV (`karpathy_train.tsv.0`, `*_genome_36.tsv`): id, width, height, n, boxes, features.

Boxes and features are base64 of float32; boxes are x1 y1 x2 y2 in pixels. Regions keep the file's order, which is by
confidence only in files with a fixed number of boxes; no confidence is stored, so scenes have no scores.
"""

import base64
import binascii
import contextlib
import gzip
import io
import re
from collections.abc import Container, Iterable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sightline.data.feature_source import FeatureSource, plain_name, regions_of, scene_format, unique_scenes
from sightline.data.format import Probe
from sightline.data.records import Problems
from sightline.errors import ByteStringError, CountError, DataError, DuplicateRecordError, TruncatedError, about
from sightline.files import PathLike, atomic_write, open_bytes
from sightline.scene import Array, Scene, normalise_boxes

FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_BUFFER = 1 << 22  # a line is 400 KB; with Python's 8 KiB buffer, joining the pieces costs as much as decoding
_AGAIN = "download the file again, or extract this image again"
_LONGEST = 64 << 20  # bytes of a line: 100 regions of 2,048 numbers take one of these 64 MB

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_INVALID = 0xFFFF  # of a pair that is not base64; true pairs have twelve bits
_BLOCK = 65536  # characters at a time: the intermediate arrays then stay in cache, and below malloc's mmap threshold


class Line(NamedTuple):
    """One record, line break included; `offset` is its place in the (unpacked) file."""

    data: bytes
    offset: int
    number: int

    def fields(self) -> list[memoryview]:
        """The six fields; `split` would copy 400 KB a line."""
        tabs = [-1]
        while (tab := self.data.find(b"\t", tabs[-1] + 1)) >= 0:
            tabs.append(tab)
        if len(tabs) < len(FIELDS):
            what = f"the line has {len(tabs)} of the {len(FIELDS)} fields {', '.join(FIELDS)}"
            raise TruncatedError(what, fix="download the file again")
        if len(tabs) > len(FIELDS):
            what = f"the line has {len(tabs)} fields, not {', '.join(FIELDS)}"
            raise DataError(what, fix="keep these six columns")
        end = len(self.data) - self.data.endswith(b"\n") - self.data.endswith(b"\r\n")
        view = memoryview(self.data)
        return [view[before + 1 : after] for before, after in pairwise([*tabs, end])]

    def id(self) -> str:
        tab = self.data.find(b"\t")
        return self.data[: None if tab < 0 else tab].strip().decode("utf-8", "replace")


class BottomUpTsv(FeatureSource):
    """Scenes of one TSV (`.tsv`, `.tsv.0`, `.tsv.gz`). Ids are found in an index of byte offsets.

    The index is made by one scan when first needed; iterating does not need it. Looking up ids in a `.gz` unpacks
    everything before the record: unpack the file first if you need more than iteration.
    """

    def read(self, id: str) -> Scene:
        offset, length, number = self.index[id]
        with open_bytes(self.path) as file:
            file.seek(offset)
            data = file.read(length)
        if len(data) < length:
            what = f"image {id} was at byte {offset}, and the file has become shorter"
            raise TruncatedError(what, where=self.path, fix="open it again")
        return self._scene(Line(data, offset, number))

    def each(self, problems: Problems) -> Iterator[Scene]:
        """Every scene, in one pass over the file; what is wrong with one goes to `problems`."""
        ids: set[str] = set()
        for line in _lines(self.path):
            with problems:
                scene = self._scene(line)
                self._refuse_twice(scene.id, ids, line)
                ids.add(scene.id)
                yield scene

    @cached_property
    def index(self) -> dict[str, tuple[int, int, int]]:
        """Id to offset, length and number of its line."""
        index: dict[str, tuple[int, int, int]] = {}
        for line in _lines(self.path):
            id = line.id()
            self._refuse_twice(id, index, line)
            index[id] = line.offset, len(line.data), line.number
        return index

    @cached_property
    def _width(self) -> int | None:
        """The feature width of the first record: all must share it. None if that record is itself unreadable."""
        with contextlib.suppress(DataError):
            for line in _lines(self.path):
                return int(_parse(line)[-1].shape[1])
        return None

    def _where(self, line: Line) -> str:
        return f"{self.path}, line {line.number}"

    def _refuse_twice(self, id: str, ids: Container[str], line: Line) -> None:
        if id in ids:
            fix = "remove one of the two lines"
            raise DuplicateRecordError(f"image {id} appears twice", where=self._where(line), fix=fix)

    def _scene(self, line: Line) -> Scene:
        where = self._where(line)
        with about(where):
            id, size, boxes, features = _parse(line)
            width = features.shape[1]
            what = f"features are {width} wide, those of the first image {self._width}"
            if self._width is not None and width < self._width:
                raise TruncatedError(f"{what}: the record ends too early", fix=_AGAIN)
            if self._width is not None and width > self._width:
                raise CountError(what, fix="keep features of different models in different files")
            return Scene(id, boxes=normalise_boxes(boxes, size), regions=features, size=size, source=where)


def _parse(line: Line) -> tuple[str, tuple[int, int], Array, Array]:
    """Id, size, boxes (n, 4) in pixels, features (n, d)."""
    fields = line.fields()
    id = line.id()
    width, height, count = (_whole_number(bytes(fields[i]), FIELDS[i]) for i in (1, 2, 3))
    if count < 1:
        raise CountError(f"image {id} has num_boxes {count}", fix="remove the line or extract it again")
    boxes = _floats(fields[4], "boxes")
    if boxes.size != 4 * count:
        what = f"image {id} has {boxes.size / 4:g} boxes where num_boxes says {count}"
        raise CountError(what, fix="extract this image again")
    features = _floats(fields[5], "features")
    if features.size % count or features.size == 0:
        what = f"image {id} has {features.size} feature values, which is no multiple of its {count} boxes"
        raise TruncatedError(what, fix=_AGAIN)
    return id, (width, height), boxes.reshape(count, 4), features.reshape(count, -1)


def _whole_number(field: bytes, name: str) -> int:
    if not field.isdigit() or len(field) > 9:  # no picture is a thousand million pixels wide
        what = f"{name} is {field[:20].decode('utf-8', 'replace')!r}, a whole number was expected"
        raise DataError(what, fix=f"the columns must be {', '.join(FIELDS)}, without a header line")
    return int(field)


def _floats(field: memoryview, name: str) -> Array:
    if bytes(field[:2]) in (b"b'", b'b"'):
        raise ByteStringError(f"{name} is a printed bytes object, b'...'", fix="write base64 with .decode('ascii')")
    try:
        return decode_base64(field).view("<f4")
    except ValueError as error:  # of base64, or of a number of bytes that is no multiple of four
        raise TruncatedError(f"{name} is not whole base64 float32: {error}", fix="download the file again") from error


def _pair_table() -> npt.NDArray[np.uint16]:
    value = np.full(256, -1, dtype=np.int32)
    value[list(_ALPHABET)] = np.arange(64)
    first, second = value[np.arange(65536) & 255], value[np.arange(65536) >> 8]
    return np.where((first < 0) | (second < 0), _INVALID, first << 6 | second).astype("<u2")


_PAIRS = _pair_table()


def decode_base64(text: bytes | memoryview) -> npt.NDArray[np.uint8]:
    """The bytes that base64 `text` stands for, about three times faster than `binascii`; bad text is a ValueError.

    One table look-up turns two characters into twelve bits; four characters make 24 bits, written as three bytes.
    The last four characters, which may hold padding, go through `binascii`.
    """
    if len(text) % 4:
        raise ValueError(f"{len(text)} base64 characters are not a multiple of four")
    if len(text) == 0:
        return np.empty(0, dtype=np.uint8)
    tail = binascii.a2b_base64(text[-4:], strict_mode=True)
    pairs = np.frombuffer(text, dtype="<u2", count=len(text) // 2 - 2)
    decoded = np.empty(len(pairs) // 2 * 3 + len(tail), dtype=np.uint8)
    decoded[len(decoded) - len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
    triples = decoded[: len(decoded) - len(tail)].reshape(-1, 3)
    for start in range(0, len(triples), _BLOCK // 4):
        out = triples[start : start + _BLOCK // 4]
        twelve = _PAIRS.take(pairs[2 * start : 2 * (start + len(out))], mode="clip")  # "clip" skips the bounds check
        if twelve.max() == _INVALID:
            raise ValueError("characters that are not base64")
        words = twelve.view("<u4")
        octets = ((words << 12) | (words >> 16)).astype("<u4", copy=False).view(np.uint8).reshape(-1, 4)
        out[:, 0], out[:, 1], out[:, 2] = octets[:, 2], octets[:, 1], octets[:, 0]
    return decoded


def _lines(path: Path) -> Iterator[Line]:
    """Every line that is not blank. They are read, not mapped, for the reason that `NpyRows` gives."""
    size, offset = path.stat().st_size, 0
    with open_bytes(path) as file:
        buffered = io.BufferedReader(cast(io.RawIOBase, file), _BUFFER)
        for number, data in enumerate(iter(partial(buffered.readline, _LONGEST), b""), start=1):
            if len(data) == _LONGEST:
                what = f"the line is longer than {_LONGEST >> 20} MiB"
                raise DataError(what, where=f"{path}, line {number}", fix=_AGAIN)
            if len(data) > 2 or data.strip():
                yield Line(data, offset, number)
            offset += len(data)
    if path.stat().st_size < size:  # perhaps at the end of a line, which would look like the end of the file
        raise TruncatedError("the file became shorter while it was read", where=path, fix="read it again")


def _matches(probe: Probe) -> bool:
    """Whether the first line has two whole numbers among width, height and n, and then base64."""
    fields = probe.head.split(b"\n", 1)[0].split(b"\t")
    if not 5 <= len(fields) <= 6:
        return False
    return sum(map(bytes.isdigit, fields[1:4])) >= 2 and bool(re.match(rb"(b['\"])?[A-Za-z0-9+/]{8}", fields[4]))


def write_scenes(path: PathLike, scenes: Iterable[Scene]) -> int:
    """Write a TSV (gzipped if the name ends in `.gz`). Features become float32, boxes pixels of the scene's size."""
    count = 0
    with contextlib.ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(atomic_write(path))
        if Path(path).suffix == ".gz":
            file = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0)))
        for scene in unique_scenes(scenes, path):
            scene.require("boxes", "regions", "size", by="a bottom-up TSV")
            assert scene.size is not None
            regions = regions_of(scene, "a bottom-up TSV")
            head = "\t".join([plain_name(scene), *map(str, scene.size), str(len(scene))])
            packed = (base64.b64encode(part.astype("<f4").tobytes()) for part in (scene.pixel_boxes(), regions))
            file.write(b"\t".join([head.encode("utf-8"), *packed]) + b"\n")
            count += 1
    return count


FORMAT = scene_format(
    "bottom-up-tsv",
    "Bottom-up attention features: one line an image, boxes and region features in base64",
    _matches,
    BottomUpTsv,
    write_scenes,
    ("boxes", "regions", "size"),
)
