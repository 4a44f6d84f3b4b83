"""Sightline's own feature store as a data format: recognised, inspected, read and written like any other."""

import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from sightline.data.format import Format, Probe, Summary
from sightline.data.records import Problems
from sightline.scene import Scene
from sightline.vision.feature_store import FeatureStore
from sightline.vision.store_layout import INDEX, NAME, SETTINGS, shard_name


def _matches(probe: Probe) -> bool:
    return len({SETTINGS, INDEX, shard_name(0)}.intersection(probe.entries)) >= 2  # one file may be lost


def _survey(path: Path, problems: Problems) -> Summary:
    """Count what the store holds, reading every record and comparing its checksum."""
    store = FeatureStore(path)
    parts: Counter[str] = Counter()
    lengths: set[int] = set()
    for id in store.ids():
        with problems:
            scene = store[id]
            parts.update(scene.parts())
            lengths.add(len(scene))
    counts: dict[str, int | str] = {"scenes": len(store), **{f"with {name}": n for name, n in parts.items()}}
    if lengths:
        counts["regions per scene"] = f"{min(lengths)}–{max(lengths)}"
    return counts, (f"numbers are {store.dtype}", f"made by {store.fingerprint or '(unknown)'}")


def write_scenes(path: Path, scenes: Iterable[Scene], dtype: str | None = None) -> int:
    """Write scenes into a store (float16 unless `dtype` says float32) and return how many it holds.

    A store that is there already is continued: what it holds is compared, not written again. A run that stops keeps
    what it finished.
    """
    source = iter(scenes)
    first = list(itertools.islice(source, 1))
    fingerprint = first[0].fingerprint if first else ""
    with FeatureStore.writer(path, fingerprint=fingerprint, dtype=dtype) as writer:
        for scene in itertools.chain(first, source):
            writer.ensure(scene)
        return len(writer)


FORMAT = Format(
    name=NAME,
    about="Sightline's own feature store: checksummed scenes in one folder",
    matches=_matches,
    survey=_survey,
    scenes=FeatureStore,
    write_scenes=write_scenes,
    keeps=("boxes", "scores", "regions", "grid", "vector", "concepts", "size"),
)
