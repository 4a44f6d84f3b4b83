"""Photos are found by words, by a photo, without what is not wanted, and by what captions say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from search_samples import row, unit_vectors
from sightline.errors import ConfigError, DataError
from sightline.pipeline import Pipeline
from sightline.search import lance, query
from sightline.search.engine import Candidate
from sightline.search.exact import ExactIndex
from sightline.search.lance import LanceIndex
from sightline.search.query import AVOID_WEIGHT, CANDIDATES, CAPTION_WEIGHT, PhotoIndex, model_of, rank, weaker, without

torch.set_num_threads(1)
NEEDS_LANCE = pytest.mark.skipif(not lance.is_installed(), reason="LanceDB is not installed")
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))
SAID = ["a dog on a table", "two cats", "a man with a cup", None, "a dog runs in the park"]


@pytest.fixture(scope="module")
def pipeline():
    return Pipeline(tiny_bundle())


@pytest.fixture(scope="module")
def store(pipeline, tmp_path_factory) -> Path:
    """The example photos with vectors of the model, and captions that tell them apart."""
    folder = tmp_path_factory.mktemp("store")
    engine = ExactIndex(folder)
    engine.clear(model_of(pipeline.bundle))
    pairs = zip(PHOTOS, pipeline.vectors(PHOTOS), SAID, strict=True)
    engine.write([row("", vector, said, path=str(photo)) for photo, vector, said in pairs])
    return folder


@pytest.fixture
def index(store):
    return PhotoIndex(store)


def test_vectors_alone_rank_by_their_cosine(index, pipeline):
    hits = index.search(pipeline, "a dog", captions=False)
    cosines = pipeline.vectors(PHOTOS) @ pipeline.text_vectors(["a dog"])[0]
    assert [hit.path for hit in hits] == [str(PHOTOS[i]) for i in np.argsort(-cosines)]
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(cosines)[::-1], atol=1e-5)


def test_a_photo_finds_itself_first(index, pipeline):
    for photo in PHOTOS:
        first, *_ = index.search(pipeline, photo=photo, count=2)
        assert first.path == str(photo)
        assert first.score == pytest.approx(1, abs=1e-4)
    assert index.search(pipeline, photo=PHOTOS[1].read_bytes(), count=1)[0].path == str(PHOTOS[1])


def test_words_and_a_photo_count_alike(index, pipeline):
    hits = index.search(pipeline, "a dog", photo=PHOTOS[2], captions=False)
    both = pipeline.text_vectors(["a dog"])[0] + pipeline.vectors([PHOTOS[2]])[0]
    expected = pipeline.vectors(PHOTOS) @ (both / np.linalg.norm(both))
    assert [hit.path for hit in hits] == [str(PHOTOS[i]) for i in np.argsort(-expected)]


def test_what_captions_say_lifts_photos(index, pipeline):
    alone = {hit.path: hit.score for hit in index.search(pipeline, "two cats", captions=False)}
    together = {hit.path: hit.score for hit in index.search(pipeline, "two cats")}
    spread = max(alone.values()) - min(alone.values())
    for photo, said in zip(map(str, PHOTOS), SAID, strict=True):
        lift = CAPTION_WEIGHT * spread if said == "two cats" else 0
        assert together[photo] == pytest.approx(alone[photo] + lift, abs=1e-5)


@pytest.mark.parametrize("kind", ["exact", pytest.param("lance", marks=NEEDS_LANCE)])
def test_words_the_model_does_not_know_are_found_in_captions_alone(pipeline, tmp_path, kind):
    engine = {"exact": ExactIndex, "lance": LanceIndex}[kind](tmp_path)
    engine.clear(model_of(pipeline.bundle))
    said = ["a zebra", "a zebra and a xyzzy", "a dog on a table", None, "two cats"]
    pairs = zip(PHOTOS, pipeline.vectors(PHOTOS), said, strict=True)
    engine.write([row("", vector, text, path=str(photo)) for photo, vector, text in pairs])
    engine.tidy()
    index = PhotoIndex(tmp_path)
    hits = index.search(pipeline, "the zebra xyzzy")
    assert [hit.caption for hit in hits] == ["a zebra and a xyzzy", "a zebra"]
    assert hits[0].score == 1
    assert 0 < hits[1].score < 1
    assert [hit.caption for hit in index.search(pipeline, "zebras", avoid="xyzzy")] == ["a zebra"]
    assert len(index.search(pipeline, "zebras", count=1)) == 1
    assert index.search(pipeline, "zebra", captions=False) == []
    assert index.search(pipeline, "quagga") == []
    assert len(index.search(pipeline, "a dog and a quagga")) == len(PHOTOS)


def test_words_to_avoid_that_mean_nothing_change_nothing(index, pipeline):
    assert index.search(pipeline, "a dog", avoid="quagga") == index.search(pipeline, "a dog")


def test_a_score_is_the_cosine_and_the_share_of_what_the_best_caption_says():
    found = [Candidate("a", None, 0.5), Candidate("b", "x", 0.4, 2.0), Candidate("c", "y", 0.3, 4.0)]
    scored = {one.path: score for one, score in rank(found)}
    assert scored == pytest.approx({"a": 0.5, "b": 0.4 + CAPTION_WEIGHT * 0.2 / 2, "c": 0.3 + CAPTION_WEIGHT * 0.2})
    assert rank([]) == []
    many = [Candidate(f"{i:03}", None, 1 - i / 1000) for i in range(300)] + [Candidate("far", "said", -1, 3.0)]
    apart = (CANDIDATES - 1) / 1000
    assert {one.path: score for one, score in rank(many)}["far"] == pytest.approx(-1 + CAPTION_WEIGHT * apart)
    assert [one.path for one, _ in rank([Candidate("b", None, 0.5), Candidate("a", None, 0.5)])] == ["a", "b"]


def test_avoiding_subtracts_only_what_the_query_does_not_mean():
    wanted, avoid = unit_vectors(2, 6, 0)
    query = without(wanted, avoid)
    apart = avoid - (avoid @ wanted) * wanted
    expected = wanted - AVOID_WEIGHT * apart
    np.testing.assert_allclose(query, expected / np.linalg.norm(expected), atol=1e-6)
    assert np.linalg.norm(query) == pytest.approx(1, abs=1e-6)
    assert query @ wanted > 0
    assert query @ apart < 0


def test_of_two_photos_that_fit_the_one_with_what_is_avoided_comes_last():
    dog, cat = np.array([0.8, 0.6, 0]), np.array([0, 0.6, 0.8])
    with_cat, without_cat = np.array([0.7, 0.5, 0.5]), np.array([0.7, 0.5, 0.0])
    query = without(dog, cat)
    assert query @ without_cat / np.linalg.norm(without_cat) > query @ with_cat / np.linalg.norm(with_cat)


def test_avoiding_what_is_wanted_is_told(index, pipeline):
    with pytest.raises(ConfigError, match="mean the same"):
        index.search(pipeline, "a dog", avoid="a dog")


def test_photos_whose_captions_say_what_is_avoided_are_left_out(index, pipeline):
    hits = index.search(pipeline, "a dog", avoid="the park")
    assert len(hits) == 4
    assert str(PHOTOS[4]) not in [hit.path for hit in hits]
    assert len(index.search(pipeline, "a dog", avoid="the park", captions=False)) == 5
    assert len(index.search(pipeline, "a cup", avoid="dogs in parks")) == 4


def test_avoiding_goes_with_a_photo_too(index, pipeline):
    assert str(PHOTOS[1]) not in [hit.path for hit in index.search(pipeline, photo=PHOTOS[1], avoid="cat")]


def test_no_more_come_than_were_asked_for(index, pipeline):
    assert len(index.search(pipeline, "a dog", count=2)) == 2
    assert len(index.search(pipeline, "a dog", count=1000)) == 5
    with pytest.raises(ConfigError, match="1 or more"):
        index.search(pipeline, "a dog", count=0)


def test_explaining_tells_where_the_words_are(index, pipeline):
    (hit,) = index.search(pipeline, "a dog on the table", count=1, explain=True)
    assert hit.why["words"] == pipeline.ground(hit.path, "a dog on the table").to_json()["words"]
    assert [word["word"] for word in hit.why["words"]] == ["a", "dog", "on", "the", "table"]
    assert hit.to_json()["why"] == hit.why
    assert "why" not in index.search(pipeline, "a dog", count=1)[0].to_json()


def test_a_hit_whose_file_is_gone_is_still_a_hit(pipeline, tmp_path):
    engine = ExactIndex(tmp_path)
    engine.clear(model_of(pipeline.bundle))
    engine.write([row("gone.jpg", pipeline.vectors(PHOTOS[:1])[0], "a dog")])
    (hit,) = PhotoIndex(tmp_path).search(pipeline, "a dog", explain=True)
    assert hit.why["words"] == []
    assert "no such file" in hit.why["error"]


def test_another_model_is_refused(index, store):
    with pytest.raises(ConfigError, match="made with another model") as told:
        index.search(Pipeline(tiny_bundle(seed=4)), "a dog")
    assert str(store) in str(told.value)


def test_a_model_is_known_by_its_eyes_matcher_and_words_and_not_by_its_captioner():
    assert model_of(tiny_bundle()) == model_of(tiny_bundle())
    assert model_of(tiny_bundle()) != model_of(tiny_bundle(seed=4))
    assert model_of(tiny_bundle()) != model_of(tiny_bundle(other_words=True))
    other = tiny_bundle()
    with torch.no_grad():
        other.captioner.model.output.weight.add_(1)
    assert model_of(other) == model_of(tiny_bundle())
    with pytest.raises(ConfigError, match="no matcher"):
        model_of(tiny_bundle(matcher=False))


def test_nothing_to_look_for_is_told(index, pipeline):
    for words in ("", "  "):
        with pytest.raises(ConfigError, match="nothing to look for"):
            index.search(pipeline, words)


def test_a_place_without_an_index_is_told(tmp_path):
    with pytest.raises(DataError, match="no photo index"):
        PhotoIndex(tmp_path)


def test_an_open_index_goes_on_when_it_moves_to_another_engine(pipeline, tmp_path, monkeypatch):
    pytest.importorskip("lancedb")
    from sightline.search.sync import engine_for, hold_store

    engine = ExactIndex(tmp_path)
    engine.clear(model_of(pipeline.bundle))
    engine.write([row(f"{i}.jpg", vector) for i, vector in enumerate(pipeline.vectors(PHOTOS))])
    index = PhotoIndex(tmp_path)
    before = [hit.path for hit in index.search(pipeline, "a dog")]
    with hold_store(tmp_path):
        assert engine_for(tmp_path, 5, "lance").kind == "lance"
    assert [hit.path for hit in index.search(pipeline, "a dog")] == before
    assert len(index) == 5


def found(near: float, text: float = 0.0, name: str = "x") -> Candidate:
    return Candidate(f"/photos/{name}", None, near, text)


def test_a_match_is_near_or_says_the_words_and_the_rest_is_weaker():
    ranked = [(found(0.6), 0.6), (found(0.45), 0.45), (found(0.3), 0.3), (found(0.0), 0.0)]
    assert weaker(ranked, least=0.4) == [False, False, True, True]
    assert weaker(ranked, least=0.5) == [False, True, True, True]
    assert weaker(ranked, least=-np.inf) == [False, False, False, True]  # nearer to the worst than to the best
    assert weaker([(found(0.3), 0.3)], least=0.4) == [True]  # the best of what there is, and no match
    says = [(found(0.6, 2.0), 0.7), (found(0.1, 1.0), 0.2), (found(0.1, 0.9), 0.2), (found(0.0), 0.0)]
    assert weaker(says, least=0.4) == [False, False, True, True]
    assert weaker([], least=0.4) == []


def test_a_single_word_has_a_line_of_its_own(pipeline, tmp_path, monkeypatch):
    engine = ExactIndex(tmp_path)
    engine.clear(model_of(pipeline.bundle))
    engine.write([row("", v, None, path=str(p)) for p, v in zip(PHOTOS, pipeline.vectors(PHOTOS), strict=True)])
    monkeypatch.setattr(query, "NOUN_COSINE", 2.0)  # no photo is so near
    monkeypatch.setattr(query, "MATCH_COSINE", -2.0)  # all are
    assert all(hit.weak for hit in PhotoIndex(tmp_path).search(pipeline, "a cat"))
    assert not PhotoIndex(tmp_path).search(pipeline, "two cats on grass")[0].weak


def test_a_word_that_only_a_concept_says_finds_the_photo_and_it_is_no_weak_match(pipeline, tmp_path):
    engine = ExactIndex(tmp_path)
    engine.clear(model_of(pipeline.bundle))
    pairs = zip(PHOTOS, pipeline.vectors(PHOTOS), SAID, strict=True)
    named = {PHOTOS[2]: ("lighthouse", "wild cat")}
    engine.write([row("", v, said, path=str(photo), concepts=named.get(photo, ())) for photo, v, said in pairs])
    (hit,) = PhotoIndex(tmp_path).search(pipeline, "a lighthouse")  # a word that the model never learned
    assert (hit.path, hit.weak) == (str(PHOTOS[2]), False)
    alone = {hit.path: hit.score for hit in PhotoIndex(tmp_path).search(pipeline, "two cats", captions=False)}
    hits = {hit.path: hit for hit in PhotoIndex(tmp_path).search(pipeline, "two cats")}
    for at in (1, 2):  # one says it, of the other a concept does
        assert hits[str(PHOTOS[at])].score > alone[str(PHOTOS[at])]
