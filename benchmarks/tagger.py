"""Part-of-speech tags per second: batches against one caption at a time, and what the tags are worth.

    python benchmarks/tagger.py [--captions 20000] [--rounds 3] [--json]

`first pass` starts with no word type known, `again` with all of them kept; process time on one core. Where
SIGHTLINE_DATA points at Flickr8k with Entities, also the share of phrase heads that come out as nouns and of
determiners, prepositions and verbs inside phrases that do (`tagger_measure.py` says which words).
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from captions_for_benchmarks import captions, plain
from sightline.text.tagger import ASSET, Tagger
from tagger_measure import measure, sentences
from timing import cpu_seconds


def speed(count: int, rounds: int) -> dict[str, Any]:
    source, groups = captions(-(-count // 5))
    tokens = [plain(caption).split() for group in groups for caption in group][:count]
    load = cpu_seconds(lambda: Tagger.load(ASSET), rounds)
    tagger = Tagger.load(ASSET)
    first = cpu_seconds(lambda: tagger.tag_all(tokens))
    again = cpu_seconds(lambda: tagger.tag_all(tokens), rounds)
    some = tokens[: min(count, 3000)]
    single = cpu_seconds(lambda: [tagger.tag(caption) for caption in some], rounds)
    return {
        "captions": f"{len(tokens)} {source}, {sum(map(len, tokens)) / len(tokens):.1f} words each",
        "load, seconds": round(load, 3),
        "first pass, captions/s": round(len(tokens) / first),
        "again, captions/s": round(len(tokens) / again),
        "one at a time, captions/s": round(len(some) / single),
        "batch / one at a time": round(len(tokens) / again / (len(some) / single), 1),
        "same tags": tagger.tag_all(some) == [tagger.tag(caption) for caption in some],
    }


def quality(flickr8k: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for split in ("dev", "test"):
        measured = measure(Tagger.default(), sentences(flickr8k, split))
        found[f"{split}: heads as nouns"] = f"{measured.head_share:.2%} of {measured.heads}"
        found[f"{split}: function words as nouns"] = f"{measured.function_share:.2%} of {measured.function_words}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = speed(options.captions, options.rounds)
    flickr8k = Path(os.environ.get("SIGHTLINE_DATA", "")) / "flickr8k"
    if (flickr8k / "flickr30k_entities_8091.tar.gz").exists():
        found |= quality(flickr8k)
    if options.json:
        print(json.dumps(found))
        return
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
