"""SPICE: matching against a naive version, properties of the score, and its agreement with published values."""

from __future__ import annotations

import gzip
import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.text_lists import read_flickr as read_captions
from sightline.data.text_lists import read_judgements
from sightline.metrics.scene_graph import SceneGraph, parse
from sightline.metrics.spice import (
    Spice,
    match_tuples,
    merge_graphs,
    same_object,
    same_tuple,
    same_word,
)
from sightline.text import wordnet
from sightline.text.tokenizer import ptb_tokenize_all

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from expert_judgements import tau_c

CAPTIONS = [
    "a black dog running through the snow",
    "two brown dogs play in a field",
    "a man riding a wave on a surfboard",
    "a surfer rides a large wave in the ocean",
    "a woman holding a red umbrella next to a car",
    "a group of people sitting at a table with food",
    "a red fire hydrant on the side of a street",
    "a picture of a guy and a lady on a couch",
    "a photo of a man and a woman sitting on a sofa",
    "a tennis player on a court",
    "",
]

words = st.sampled_from(
    "dog domestic|man|guy|sofa|couch|court|tennis court|clay court|run|black".replace(" d", "|d").split("|")
)
graphs = st.builds(
    lambda objects, attributes, relations: SceneGraph(
        tuple(dict.fromkeys([*objects, *(a for a, _ in attributes), *(x for a, _, b in relations for x in (a, b))])),
        tuple(dict.fromkeys(attributes)),
        tuple(dict.fromkeys(relations)),
    ),
    st.lists(words, max_size=4),
    st.lists(st.tuples(words, words), max_size=4),
    st.lists(st.tuples(words, words, words), max_size=4),
)


def score(hypothesis: str, references: list[str]) -> float:
    metric = Spice()
    metric.update({"1": hypothesis}, {"1": references})
    return metric.compute().corpus["SPICE"]


def naive_matches(said: list[tuple[str, ...]], heard: list[tuple[str, ...]]) -> int:
    def alike(a: str, b: str, noun: bool) -> bool:
        if a == b:
            return True
        for pos in "n" if noun else "nvar":
            if set(wordnet.senses(a, pos)) & set(wordnet.senses(b, pos)):  # type: ignore[arg-type]
                return True
        return noun and {a, b} in ({"court", "tennis court"}, {"court", "clay court"})

    used = [False] * len(heard)
    for one in said:
        for place, other in enumerate(heard):
            fits = len(one) == len(other) and all(
                alike(a, b, position != 1) for position, (a, b) in enumerate(zip(one, other, strict=True))
            )
            if fits and not used[place]:
                used[place] = True
                break
    return sum(used)


@given(graphs, graphs)
def test_match_tuples_equal_the_naive_version(ours: SceneGraph, theirs: SceneGraph) -> None:
    found = match_tuples(ours.tuples(), theirs.tuples())
    assert len(found) == naive_matches(ours.tuples(), theirs.tuples())
    assert all(same_tuple(one, other) for one, other in found)


@given(st.lists(graphs, min_size=1, max_size=4))
def test_no_two_tuples_of_a_merged_graph_match_and_none_is_lost(several: list[SceneGraph]) -> None:
    one = merge_graphs(several).tuples()
    assert not any(same_tuple(a, b) for i, a in enumerate(one) for b in one[:i])
    for thing in (thing for graph in several for thing in graph.objects):
        assert any(same_object(thing, known[0]) for known in one if len(known) == 1)


def test_words_match_by_string_by_synset_or_as_a_compounds_general_name() -> None:
    assert same_object("couch", "sofa")
    assert same_object("bike", "bicycle")
    assert not same_object("dog", "cat")
    assert same_object("tennis court", "court")
    assert not same_object("tennis court", "clay court")
    assert not same_object("teddy bear", "bear")
    assert same_word("selfie", "selfie")
    assert same_word("large", "big")
    assert not same_word("red", "blue")


@pytest.mark.parametrize("caption", CAPTIONS[:-1])
def test_a_caption_agrees_fully_with_itself(caption: str) -> None:
    assert score(caption, [caption]) == 1


@pytest.mark.parametrize("caption", CAPTIONS[:-1])
def test_a_caption_among_its_references_has_full_precision_and_the_recall_of_its_share(caption: str) -> None:
    metric = Spice()
    metric.update({"1": caption}, {"1": CAPTIONS})
    said = len(merge_graphs([parse(caption.split())]).tuples())
    heard = len(merge_graphs(parse(c.split()) for c in CAPTIONS).tuples())
    assert metric.explain(caption, CAPTIONS).unmatched == ()
    assert metric.compute().corpus["SPICE"] == pytest.approx(2 * 1 * (said / heard) / (1 + said / heard))


def test_synonyms_in_caption_and_references_agree() -> None:
    assert score("a bike beside a couch", ["a bicycle next to a sofa"]) == 1


def test_hand_counted_f() -> None:
    # said: dog, dog/black, bed, dog/on/bed; heard: dog, dog/brown, bed, dog/two, dog/on/bed
    assert score("a black dog on a bed", ["a brown dog on a bed", "two dogs on a bed"]) == pytest.approx(
        2 * 3 / (4 + 5)
    )


def test_captions_without_tuples_score_zero() -> None:
    assert score("", ["a dog"]) == score("a dog", [""]) == score("", [""]) == 0
    assert Spice().compute().corpus == {"SPICE": 0}


def test_the_order_of_images_does_not_matter_and_batches_equal_single_images() -> None:
    pairs = list(product(CAPTIONS, CAPTIONS))
    ids = [str(place) for place in range(len(pairs))]
    forwards, backwards = Spice(), Spice()
    forwards.update(
        dict(zip(ids, [a for a, _ in pairs], strict=True)), dict(zip(ids, [[b] for _, b in pairs], strict=True))
    )
    for id, (a, b) in reversed(list(zip(ids, pairs, strict=True))):
        backwards.update({id: a}, {id: [b]})
        backwards.compute()
    one, other = forwards.compute(), backwards.compute()
    assert one.per_image == other.per_image
    assert one.corpus["SPICE"] == pytest.approx(other.corpus["SPICE"], abs=1e-12)
    assert one.corpus["SPICE"] == pytest.approx(np.mean([score(a, [b]) for a, b in pairs]), abs=1e-12)
    assert one.per_image["1"]["SPICE"] == score(*[pairs[1][0], [pairs[1][1]]])


def test_reset_forgets_images_and_resampling_weighs_them() -> None:
    metric = Spice()
    metric.update({"1": "a dog", "2": "a cat"}, {"1": ["a dog"], "2": ["a dog"]})
    assert metric.resample(np.array([[2.0, 0.0], [1.0, 1.0]]))["SPICE"].tolist() == [1, 0.5]
    metric.reset()
    assert metric.compute().per_image == {}
    metric.update({"1": "a cat"}, {"1": ["a dog"]})
    assert metric.compute().corpus["SPICE"] == 0


def test_forgetting_parsed_captions_changes_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.metrics.spice.MOST_CAPTIONS", 0)
    metric = Spice()
    for place, caption in enumerate(CAPTIONS[:-1]):
        metric.update({str(place): caption}, {str(place): [caption, CAPTIONS[0]]})
        assert metric.compute().per_image[str(place)]["SPICE"] == score(caption, [caption, CAPTIONS[0]])


def test_explain_parts_the_tuples_into_matched_unmatched_and_missed() -> None:
    found = Spice().explain("a black dog on a couch", ["a dog on a sofa", "two dogs"])
    assert found.matched == (
        (("dog",), ("dog",)),
        (("couch",), ("sofa",)),
        (("dog", "on", "couch"), ("dog", "on", "sofa")),
    )
    assert found.unmatched == (("dog", "black"),)
    assert found.missed == (("dog", "two"),)


def test_people_read_whose_parser_it_is() -> None:
    assert Spice.title == "SPICE (Sightline parser)"
    assert Spice.keys == ("SPICE",)


@pytest.mark.data
def test_official_fake_captions_score_near_the_published_value(data_dir: Path) -> None:
    results = json.loads((data_dir / "metrics" / "captions_val2014_fakecap_results.json").read_text())
    hypotheses = {str(row["image_id"]): row["caption"] for row in results}
    references: dict[str, list[str]] = {id: [] for id in hypotheses}
    with gzip.open(data_dir / "coco" / "captions_val2014.json.gz", "rt") as file:
        for row in json.load(file)["annotations"]:
            if str(row["image_id"]) in references:
                references[str(row["image_id"])].append(row["caption"])
    metric = Spice()
    said = ptb_tokenize_all(list(hypotheses.values()))
    heard = {id: ptb_tokenize_all(texts) for id, texts in references.items()}
    metric.update(dict(zip(hypotheses, said, strict=True)), heard)
    assert metric.compute().corpus["SPICE"] == pytest.approx(0.133, abs=0.02)


@pytest.mark.data
def test_spice_orders_captions_as_the_flickr8k_experts_do(data_dir: Path) -> None:
    photos = {photo.id: photo for photo in read_captions(data_dir / "flickr8k" / "Flickr8k.token.txt")}
    judged = [
        row
        for row in read_judgements(data_dir / "flickr8k" / "ExpertAnnotations.txt")
        if not row.caption.startswith(f"{row.image}#")
    ]
    assert len(judged) == 5664
    texts = {s.id: s.text for photo in photos.values() for s in photo.sentences}
    needed = {id for row in judged for id in (row.caption, *(s.id for s in photos[row.image].sentences))}
    tokenised = dict(zip(sorted(needed), ptb_tokenize_all([texts[id] for id in sorted(needed)]), strict=True))
    metric = Spice()
    metric.update(
        {str(place): tokenised[row.caption] for place, row in enumerate(judged)},
        {str(place): [tokenised[s.id] for s in photos[row.image].sentences] for place, row in enumerate(judged)},
    )
    scores = [row["SPICE"] for row in metric.compute().per_image.values()]
    assert tau_c(np.repeat(scores, 3), [score for row in judged for score in row.scores]) >= 0.45
