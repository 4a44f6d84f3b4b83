"""Every format Sightline reads, which of them a file is in, what the file holds, and what is wrong with it."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from sightline.data import (
    bottom_up_tsv,
    boxes_jsonl,
    caption_table,
    coco,
    entities,
    gvd,
    hdf5_features,
    image_list,
    json_captions,
    lmdb_features,
    npz_folder,
    photo_folder,
    pickle_formats,
    precomp,
    store_format,
    talk,
    text_lists,
)
from sightline.data.format import Format, Probe, Report
from sightline.errors import DataError, SightlineError, UnknownFormatError
from sightline.files import PathLike, existing_path, read_json
from sightline.vision.picture_formats import kind_of

# In the order in which they are tried: the first that recognises a file has it.
FORMATS: tuple[Format, ...] = (
    store_format.FORMAT,
    precomp.FORMAT,
    npz_folder.FORMAT,
    lmdb_features.FORMAT,
    hdf5_features.FORMAT,
    bottom_up_tsv.FORMAT,
    pickle_formats.VOCABULARY,
    pickle_formats.FREQUENCIES,
    entities.FORMAT,
    photo_folder.FORMAT,
    talk.FORMAT,
    json_captions.SENTICAP,
    json_captions.KARPATHY,
    gvd.REFERENCE,
    gvd.CAPTIONS,
    gvd.SPLIT,
    gvd.SUBMISSION,
    coco.EVALUATION,
    coco.INSTANCES,
    coco.CAPTIONS,
    json_captions.NEURALTALK,
    json_captions.BLIP,
    coco.RESULTS,
    boxes_jsonl.FORMAT,
    caption_table.JSON,
    caption_table.JSONL,
    caption_table.CSV,
    text_lists.CONCEPTUAL,
    text_lists.FLICKR,
    text_lists.JUDGEMENTS,
    image_list.FORMAT,
    text_lists.WORD_COUNTS,
    text_lists.CLASS_NAMES,
    json_captions.CLIPSCORE,
    text_lists.CORPUS,
)


_DEPTH = 4  # folders in folders that are walked


def identify(path: PathLike) -> Format:
    """The format of `path`, or an UnknownFormatError that tells what it looks like."""
    probe = Probe(existing_path(path))
    format = _match(probe)
    if format is None:
        raise UnknownFormatError(_unknown(probe), where=path, fix="`sightline data formats` lists the formats")
    return format


def inspect(path: PathLike) -> Iterator[Report]:
    """Reports on a file or folder; a folder in no format of its own gives the reports of what is inside it."""
    path = existing_path(path)
    if not path.is_file() and not path.is_dir():
        raise DataError("this is neither a file nor a folder", where=path, fix="name a file or a folder")
    if not os.access(path, os.R_OK):
        raise DataError("no permission to read it", where=path, fix="change its permissions")
    yield from _inspect(path)


def _inspect(path: Path, above: tuple[Path, ...] = ()) -> Iterator[Report]:
    """One bad file is a report with a problem; it never stops the others. `above` are the folders it is in."""
    if not path.is_file() and not path.is_dir():
        kind = "a broken link" if path.is_symlink() else "neither a file nor a folder"
        yield _unreadable(path, DataError(f"this is {kind}", where=path, fix="remove it or mend it"))
        return
    probe = Probe(path)
    format: Format | None = None
    try:
        format = _match(probe)
        if format is not None:
            yield format.inspect(path)
        elif probe.is_folder and len(above) < _DEPTH and probe.entries:
            if any(path.samefile(folder) for folder in above):
                return  # a link back to where we come from
            for name in _chosen(probe.entries):
                yield from _inspect(path / name, (*above, path))
        elif probe.damage is not None:
            yield _unreadable(path, probe.damage)
        else:
            yield Report(str(path), "unknown", _unknown(probe))
    except Exception as error:  # so broken that counting was not possible, or a defect of ours
        yield _unreadable(path, error, format)


def _unreadable(path: Path, error: Exception, format: Format | None = None) -> Report:
    problem = f"{path}: reading it failed ({type(error).__name__}: {error}). Please report this."
    if isinstance(error, SightlineError):
        problem = str(error)
    elif isinstance(error, OSError):
        fix = "change its permissions, or leave it out"
        problem = str(DataError(error.strerror or str(error), where=path, fix=fix))
    name, about = (format.name, format.about) if format else ("unknown", "It cannot be read")
    return Report(str(path), name, about, problems=(problem,), problem_count=1)


def _chosen(entries: list[str]) -> list[str]:
    """The entries of a folder to look at: `x_fc` and `x_box` are reported with their `x_att`."""
    features = {name.removesuffix("_att") for name in entries if name.endswith("_att")}
    return [n for n in entries if not (n.endswith(("_fc", "_box")) and n.rsplit("_", 1)[0] in features)]


def _match(probe: Probe) -> Format | None:
    return next((format for format in FORMATS if format.matches(probe)), None)


def _unknown(probe: Probe) -> str:
    """What is told about a file that no format claims."""
    if probe.name.endswith(".safetensors"):
        return f"numbers of a model, and no data: `sightline models {shlex.quote(str(probe.path))}` tells about it"
    return f"{_looks_like(probe)}, in no format Sightline reads"


def _looks_like(probe: Probe) -> str:
    """A few words on a file that no format claims."""
    if probe.is_folder:
        return f"a folder of {len(probe.entries)} entries" if probe.entries else "an empty folder"
    if probe.path.stat().st_size == 0:
        return "an empty file"
    if probe.name.endswith(".json") and probe.json is None:
        read_json(probe.path)  # raises what is wrong with it, and where
    if isinstance(probe.json, dict):
        return f"a JSON object with the keys {', '.join(list(map(str, probe.json))[:6])}"
    if isinstance(probe.json, list):
        return f"a JSON list of {len(probe.json)} items"
    if picture := kind_of(probe.head):
        return f"a {picture.name} picture (name its folder to inspect photos)"
    if probe.is_other_text:
        return "text that is not UTF-8 (save it as UTF-8)"
    return "a binary file" if probe.text is None else "a text file"
