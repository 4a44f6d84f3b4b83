"""METEOR 1.5 against scores recorded from the Java tool."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import MissingExtraError, MissingRecordError
from sightline.metrics import meteor_data
from sightline.metrics.meteor import Meteor
from sightline.metrics.scorecard import installed

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "fixtures" / "meteor_reference.json.gz").read_bytes()))
WORDS = "a the dog dogs man men sofa couch running runs on of in red big large 's - ! café 2".split()
sentence = st.lists(st.sampled_from(WORDS) | st.text(min_size=1, max_size=4), max_size=12).map(" ".join)

needs_data = pytest.mark.skipif("meteor" not in installed(), reason="the data of the extra `meteor` is not installed")


@pytest.fixture(scope="module")
def meteor() -> Meteor:
    return Meteor()


def scored(metric: Meteor, pairs: list[tuple[str, list[str]]]) -> list[float]:
    metric.reset()
    metric.update({str(i): h for i, (h, _) in enumerate(pairs)}, {str(i): r for i, (_, r) in enumerate(pairs)})
    return [row["METEOR"] for row in metric.compute().per_image.values()]


@needs_data
def test_every_recorded_image_and_the_corpus_are_equal(meteor):
    pairs = [(hypothesis, references) for hypothesis, references, _ in RECORDED["items"]]
    found = scored(meteor, pairs)
    for ours, (hypothesis, references, theirs) in zip(found, RECORDED["items"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6), (hypothesis, references)
    assert meteor.compute().corpus["METEOR"] == pytest.approx(RECORDED["corpus"], abs=1e-6)


@needs_data
@settings(max_examples=30)
@given(pairs=st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_batches_and_order_do_not_matter(meteor, pairs):
    together = scored(meteor, pairs)
    assert together == [scored(meteor, [pair])[0] for pair in pairs]
    assert list(reversed(scored(meteor, pairs[::-1]))) == together


@needs_data
@settings(max_examples=30)
@given(hypothesis=sentence, references=st.lists(sentence, min_size=1, max_size=3))
def test_the_hypothesis_among_its_references_gives_its_own_best(meteor, hypothesis, references):
    (alone,) = scored(meteor, [(hypothesis, [hypothesis])])
    (among,) = scored(meteor, [(hypothesis, [*references, hypothesis])])
    assert among == pytest.approx(alone, abs=1e-9)


@needs_data
def test_odd_and_endless_captions_are_scored(meteor):
    long = " ".join(f"word{i % 50}" for i in range(1000))
    found = scored(meteor, [("", ["a dog"]), ("a dog", [""]), ("", [""]), ("🐶 ￿", ["🐶"]), (long, [long, "a dog"])])
    assert found[:3] == [0.0, 0.0, 0.0]
    assert found[4] > 0.9


@needs_data
def test_an_explanation_names_each_match_by_its_module(meteor):
    found = meteor.explain("a man rides on a couch that is close by", ["a cat", "a man riding on a sofa that is near"])
    assert found.best == 1
    matched = {(match.hypothesis, match.reference): match.module for match in found.matches}
    assert matched[("man", "man")] == "exact"
    assert matched[("rides", "riding")] == "stem"
    assert matched[("couch", "sofa")] == "synonym"
    assert matched[("close by", "near")] == "paraphrase"
    with pytest.raises(MissingRecordError, match="no reference"):
        meteor.explain("a dog", [])


def test_without_its_data_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"sightline\[meteor\]"):
        meteor_data.open_data()
