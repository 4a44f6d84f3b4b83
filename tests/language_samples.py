"""Captions with scores recorded from pycocoevalcap, and strategies that make up others."""

import gzip
import json
from pathlib import Path

from hypothesis import strategies as st

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "fixtures" / "language_reference.json.gz").read_bytes()))
SETS = RECORDED["sets"]

# Few words, so that n-grams repeat and overlap.
SENTENCE = st.lists(st.sampled_from(["a", "dog", "on", "the", "é", "犬"]), max_size=9).map(" ".join)
CORPUS = st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=4)), min_size=1, max_size=5)


def recorded(name):
    """Hypotheses, references and scores of a recorded set; the scores by image id, the corpus' under None."""
    keys, whole = RECORDED["keys"], SETS[name]
    hypotheses = {id: image[0] for id, image in whole["images"].items()}
    references = {id: image[1] for id, image in whole["images"].items()}
    scores = {id: dict(zip(keys, image[2], strict=True)) for id, image in whole["images"].items()}
    return hypotheses, references, scores | {None: dict(zip(keys, whole["corpus"], strict=True))}


def split(corpus):
    """Hypotheses and references of a made-up corpus, by image id."""
    return {str(i): said for i, (said, _) in enumerate(corpus)}, {str(i): refs for i, (_, refs) in enumerate(corpus)}


def score(metric, hypotheses, references):
    """The scores of a metric after one update."""
    metric.update(hypotheses, references)
    return metric.compute()
