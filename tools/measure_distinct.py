"""Measure `sightline caption --distinct` on photos of Flickr8k: duplicates, self-retrieval, CIDEr.

    python tools/measure_distinct.py --data DATA --out measured/ [--model FILE] [--photos 500] [--split test]
        [--weights 0.7] [--candidates N] [--neighbours N] [--threads N]

    python tools/measure_distinct.py --data DATA --out measured/ --split dev --weights 0,0.3,0.5,0.7,0.9,1.2

DATA holds `flickr8k/` (images, Flickr8k.token.txt, Flickr_8k.*Images.txt). Captions of the first pass are kept in
`captions.jsonl` in the folder OUT. What came out is printed, and in `distinct.json`.

Duplicates are photos whose caption another photo of the folder has too. Self-retrieval asks, for each caption, at which
rank its own photo is among all photos: by log p(caption | photo) of the captioner itself, and by the matcher, which has
no part in `--distinct`. CIDEr is that of `sightline score`, in percent.

The weight is chosen on dev: that with the largest sum of the matcher's R@1, R@5 and R@10; of equals, the best CIDEr.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measured_photos import CaptionLog, TestPhoto, flickr8k

from sightline.batch import SceneBatch, TextBatch
from sightline.checkpoint.bundle import default_bundle, load_bundle
from sightline.distinct_captions import Contrast, alike, tell_apart
from sightline.export.caption_tables import caption_of
from sightline.files import write_json
from sightline.metrics.retrieval import rank_pool, recalls
from sightline.metrics.scorecard import scorecard
from sightline.models.matcher import GlobalMatcher
from sightline.pipeline import BATCH, Pipeline, groups
from sightline.vision.photo_reader import progress_bar

KS = (1, 5, 10)
AT_ONCE = 64  # captions


def duplicates(captions: Sequence[str]) -> int:
    """Photos whose caption another one has too."""
    counts = Counter(captions)
    return sum(counts[caption] > 1 for caption in captions)


class Folder:
    """Photos that were looked at once: their scenes, and their vectors where the model has a matcher."""

    def __init__(self, pipeline: Pipeline, photos: Sequence[TestPhoto]) -> None:
        self.pipeline, self.photos = pipeline, photos
        self._scored: dict[str, list[float]] = {}  # log p(caption | photo) for every photo
        paths = [photo.path for photo in photos]
        self.scenes: list[SceneBatch] = []
        with torch.inference_mode():
            for group in groups(map(pipeline.read, progress_bar("looking")(paths)), BATCH):
                self.scenes.append(pipeline.scenes(group))
        finds = pipeline.bundle.matcher
        self.vectors = None
        if finds is not None and isinstance(finds.model, GlobalMatcher):
            with torch.inference_mode():
                parts = [finds.model.embed_images(scenes)["vector"] for scenes in self.scenes]
            self.vectors = torch.cat(parts).float().cpu().numpy()

    def measure(self, captions: Sequence[str]) -> dict[str, float]:
        """Everything that is measured of one caption a photo."""
        references = {photo.id: list(photo.references) for photo in self.photos}
        said = {photo.id: caption for photo, caption in zip(self.photos, captions, strict=True)}
        cider = scorecard(said, references, ["cider"]).scores.corpus["CIDEr"]
        found = {
            "duplicates": float(duplicates(captions)),
            "alike": float(sum(map(len, alike([caption.split() for caption in captions])))),
            "different captions": float(len(set(captions))),
            "CIDEr": 100 * cider,
            "words": float(np.mean([len(caption.split()) for caption in captions])),
        }
        for k, value in self._by_captioner(captions).items():
            found[f"self-retrieval R@{k}"] = value
        for k, value in self._by_matcher(captions).items():
            found[f"matcher R@{k}"] = value
        return found

    @torch.inference_mode()
    def _by_captioner(self, captions: Sequence[str]) -> dict[int, float]:
        """As `sightline.metrics.retrieval`; a caption that was scored before is not scored again."""
        captioner, vocabulary = self.pipeline.captioner, self.pipeline.bundle.captioner.vocabulary
        new = [caption for caption in dict.fromkeys(captions) if caption not in self._scored]
        for scenes in progress_bar("self-retrieval")(self.scenes if new else []):
            memory = captioner.encode(scenes)
            for some in (new[at : at + AT_ONCE] for at in range(0, len(new), AT_ONCE)):
                ids = TextBatch.collate([caption.split() for caption in some], vocabulary).ids.to(self.pipeline.device)
                found = captioner.log_prob(memory, ids.repeat(len(scenes), 1)).view(len(scenes), -1).cpu().numpy()
                for caption, column in zip(some, found.T, strict=True):
                    self._scored.setdefault(caption, []).extend(column.tolist())
        scores = np.array([self._scored[caption] for caption in captions]).T  # (photos, captions)
        return self._recalls(scores)

    def _by_matcher(self, captions: Sequence[str]) -> dict[int, float]:
        if self.vectors is None:
            return {}
        return self._recalls(self.vectors @ self.pipeline.text_vectors(list(captions)).T)

    def _recalls(self, scores: np.ndarray[Any, Any]) -> dict[int, float]:
        index = np.arange(len(scores))
        ranks = rank_pool(
            lambda rows, columns: scores[np.ix_(rows, columns)], index, index, (len(scores), len(scores))
        ).text_to_image
        return recalls(ranks, KS)


def chosen(told: Mapping[float, Mapping[str, float]]) -> float:
    """The weight whose captions tell photos apart best, by those who had no part in it."""
    return max(told, key=lambda weight: (sum(told[weight].get(f"matcher R@{k}", 0) for k in KS), told[weight]["CIDEr"]))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Before, and after for each weight; on dev, the weight that is chosen."""
    if options.threads:
        torch.set_num_threads(options.threads)
    model = options.model or default_bundle()
    pipeline = Pipeline(load_bundle(model))
    photos = flickr8k(options.data, options.split)[: options.photos]
    records = CaptionLog(options.out, model).caption(pipeline, "flickr8k", photos)
    said = [caption_of({**records[photo.id], "path": str(photo.path)}) for photo in photos]
    folder = Folder(pipeline, photos)
    results: dict[str, Any] = {"model": model.name, "photos": len(photos)}
    results["before"] = before = folder.measure([one.text for one in said])
    _tell("before", before)
    told: dict[float, dict[str, float]] = {}
    for weight in options.weight:
        contrast, began = Contrast(weight, options.candidates, options.neighbours), time.perf_counter()
        apart = [one.text for one in tell_apart(pipeline, said, contrast=contrast)]
        seconds = time.perf_counter() - began
        after = folder.measure(apart) | {"seconds": seconds}
        after["duplicates removed, %"] = 100 * (1 - after["duplicates"] / max(1.0, before["duplicates"]))
        results[f"weight {weight:g}"] = told[weight] = after
        _tell(f"weight {weight:g}", after)
        if options.show:
            for one, new in zip(said, apart, strict=True):
                if one.text != new:
                    print(f"  {one.text}  ->  {new}")
    if options.split == "dev":
        results["chosen"] = chosen(told)
        print(f"chosen: {results['chosen']:g}")
    return results


def _tell(title: str, found: dict[str, float]) -> None:
    print(f"{title}: " + ", ".join(f"{name} {value:.1f}" for name, value in found.items()), flush=True)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data, usual = os.environ.get("SIGHTLINE_DATA"), Contrast()
    parser.add_argument("--data", type=Path, default=data and Path(data), required=not data)
    parser.add_argument("--model", type=Path, help="by default the one that comes with the package")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--photos", type=int, default=500)
    parser.add_argument("--split", choices=("dev", "test"), default="test", help="weights are chosen on dev")
    parser.add_argument(
        "--weight", "--weights", type=lambda text: [float(one) for one in text.split(",")], default=[usual.weight]
    )
    parser.add_argument("--candidates", type=int, default=usual.candidates)
    parser.add_argument("--neighbours", type=int, default=usual.neighbours)
    parser.add_argument("--show", action="store_true", help="print the captions that were rewritten")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(argv)
    results = measure(options)
    write_json(options.out / "distinct.json", results, indent=1)
    return results


if __name__ == "__main__":
    main()
