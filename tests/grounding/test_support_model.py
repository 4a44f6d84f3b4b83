"""Which nouns of captions a photo does not support."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bundle_samples import EXAMPLES, SIZE, tiny_bundle
from sightline.batch import TextBatch
from sightline.checkpoint.bundle import Bundle
from sightline.errors import ConfigError
from sightline.grounding.evidence import Evidence, verdict_of
from sightline.grounding.noun_scores import words_of
from sightline.grounding.nouns import PLACES
from sightline.grounding.photo_evidence import concept_odds
from sightline.grounding.region_names import RegionNames
from sightline.grounding.support_model import SupportModel
from sightline.grounding.synonyms import may_name_the_same
from sightline.models.end_to_end import Reader
from sightline.models.sim_trans import SimTransConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.pipeline import Pipeline
from sightline.scene import Concept
from sightline.text.tagger import Tagger
from sightline.text.vocabulary import rule
from sightline.vision.grid_encoder import GridEncoder

torch.set_num_threads(1)
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))
TEXTS = ["A dog sits on a table .", "two cats, and a ball", "", "!", "the woman in front of the cup", "a " * 30 + "dog"]
NUMBERS = st.one_of(st.just(math.nan), st.floats(-50, 50))


@pytest.fixture(scope="module")
def bundle():
    return tiny_bundle()


@pytest.fixture(scope="module")
def pipeline(bundle):
    return Pipeline(bundle)


def test_the_nouns_that_name_things_are_audited_and_found_again_in_the_caption(pipeline):
    for text, audit in zip(TEXTS, pipeline.audit(PHOTOS[0], TEXTS), strict=True):
        assert audit.caption == text
        words = rule("self-critical").all_words(text)
        nouns = [w for w, noun in zip(words, Tagger.default().nouns(words), strict=True) if noun and w not in PLACES]
        assert [noun.word for noun in audit.nouns] == nouns
        for noun in audit.nouns:
            assert text.split()[noun.index].lower().strip(",.!") == noun.word


@pytest.mark.parametrize(
    ("text", "nouns"),
    [
        ("a close up of a cat", ["cat"]),
        ("A close-up of a cat", ["cat"]),
        ("a close - up of a cat", ["cat"]),
        ("Closeup of two cats", ["cats"]),
        ("a black and white photo of a dog in the background", ["dog"]),
        ("a picture of a group of people on a sunny day", ["people"]),
        ("a couple of dogs at the side of a pair of cups", ["dogs", "cups"]),
        ("a lot of cars in a parking lot", ["cars", "parking", "lot"]),
        ("the view of a table at night time", ["table"]),
    ],
)
def test_nouns_that_name_no_thing_are_not_audited(pipeline, text, nouns):
    (audit,) = pipeline.audit(PHOTOS[0], text, least=1.0)
    assert [noun.word for noun in audit.nouns] == nouns
    assert pipeline.ground(PHOTOS[0], text).sentence == text  # where words point is another question


def test_the_json_form_is_that_of_the_documentation(pipeline):
    told = pipeline.audit(PHOTOS[1], "A dog sits on a table .", least=1.0)[0].to_json()
    assert list(told) == ["path", "caption", "size", "nouns", "flagged"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["flagged"] == len(told["nouns"]) == 2
    for noun in told["nouns"]:
        assert list(noun) == ["word", "index", "supported", "support", "verdict", "box", "instead"]
        assert 0 <= noun["box"][0] <= noun["box"][2] <= told["size"][0]


def test_one_caption_or_many_come_to_the_same(pipeline):
    many = pipeline.audit(PHOTOS[0], TEXTS * 7)  # more than are read at once
    assert [audit.caption for audit in many] == TEXTS * 7
    for text, audit in zip(TEXTS, many[-len(TEXTS) :], strict=True):
        (alone,) = pipeline.audit(PHOTOS[0], text)
        assert [n.word for n in alone.nouns] == [n.word for n in audit.nouns]
        assert [n.support for n in alone.nouns] == pytest.approx([n.support for n in audit.nouns], abs=1e-3)
    assert pipeline.audit(PHOTOS[0], []) == []


def test_the_threshold_decides_what_is_flagged(pipeline):
    text = "a dog and a cat on the table"
    everything, nothing = (pipeline.audit(PHOTOS[0], text, least=least)[0] for least in (1.0, 0.0))
    assert len(everything.flagged_nouns) == 3
    assert nothing.flagged_nouns == ()
    assert all(noun.instead == () for noun in nothing.nouns)
    with pytest.raises(ConfigError, match="threshold"):
        pipeline.audit(PHOTOS[0], text, least=1.5)


def test_what_is_seen_instead_is_nothing_of_the_kind(pipeline):
    for path in PHOTOS:
        for noun in pipeline.audit(path, "a dog and a man with a ball", least=1.0)[0].nouns:
            assert len(noun.instead) <= 3
            assert not any(may_name_the_same(name, noun.word) for name in noun.instead)


def test_the_evidence_is_what_each_model_says(pipeline, bundle):
    photo, text = PHOTOS[0], "a dog on the table"
    scene = pipeline.scenes([pipeline.read(photo)])
    (audit,) = pipeline.audit(photo, text)
    dog, table = audit.nouns
    with torch.no_grad():
        words, finds = bundle.captioner.vocabulary, bundle.matcher
        model = bundle.captioner.model
        log_probs = model(model.encode(scene), torch.tensor([words.encode(text.split())])).log_probs[0]
        assert dog.evidence.said == pytest.approx(float(log_probs[1, words.id("dog")]), abs=0.05)  # of 8 bits
        assert dog.evidence.asked == pytest.approx(dog.evidence.said, abs=1e-4)  # also after "a"
        assert dog.evidence.rarity == math.log(words.id("dog"))
        odds = bundle.vision.naming(scene.regions[0][scene.region_mask[0]])
        assert dog.evidence.named == pytest.approx(float(odds[:, 0].max()), rel=1e-4)
        images, texts = finds.model.embed_images(scene), TextBatch.collate([["a", "dog"]], finds.vocabulary)
        asked = finds.model.embed_texts(texts)
        assert dog.evidence.found == pytest.approx(float(finds.model.grounding(images, asked)[0, 2].max()), abs=1e-5)
        assert dog.evidence.fits == pytest.approx(float(images["vector"] @ asked["vector"].T), abs=1e-5)
    assert math.isnan(table.evidence.named)  # the detector has no name for it


def test_a_noun_that_nobody_knows_is_not_doubted(pipeline):
    (noun,) = pipeline.audit(PHOTOS[0], "the zyzzyva")[0].nouns
    assert all(map(math.isnan, noun.evidence))
    assert noun.supported
    assert noun.support == pytest.approx(1 / (1 + math.exp(-pipeline.auditing.bias)))


def test_a_photo_in_which_nothing_is_found_is_audited_by_what_is_left(pipeline):
    scene = pipeline.scenes([pipeline.read(PHOTOS[0])])
    empty = replace(scene, region_mask=torch.zeros_like(scene.region_mask), boxes=torch.zeros_like(scene.boxes))
    with torch.inference_mode():
        (known,) = pipeline._grounder.score_nouns([["a", "dog"]], empty)
    assert known.caption.trace[1].box is None
    evidence = known.evidence[1]
    assert [name for name, value in evidence._asdict().items() if math.isnan(value)] == ["named", "found", "unrivalled"]


@pytest.mark.parametrize("parts", [{"matcher": None}], ids=["no matcher"])
def test_models_without_a_part_audit_with_the_rest(bundle, parts):
    (audit,) = Pipeline(replace(bundle, **parts)).audit(PHOTOS[0], "a dog")
    assert math.isnan(audit.nouns[0].evidence.found)
    assert math.isfinite(audit.nouns[0].evidence.said)


def test_a_vision_model_of_grid_cells_and_a_global_matcher_serve_too(bundle):
    words = bundle.captioner.vocabulary
    says = SimTransConfig(region_width=1280, hidden_size=16, heads=2, layers=1, ffn_size=16).build(len(words)).eval()
    finds = VSEPPConfig(region_width=1280, vector_width=1280, size=6, word_size=5).build(len(words)).eval()
    vision = GridEncoder("lite0", SIZE).eval()
    pipeline = Pipeline(Bundle(vision, Reader(says, words, "scan"), Reader(finds, words, "scan")))
    (noun,) = pipeline.audit(PHOTOS[0], "A dog .")[0].nouns
    assert [name for name, value in noun.evidence._asdict().items() if math.isnan(value)] == [
        "named",
        "found",
        "unrivalled",
        "concept",
    ]
    assert pipeline.ground(PHOTOS[0], "A dog .").trace[1].box is not None


def test_a_region_has_the_names_of_what_it_is_a_kind_of(bundle):
    names = RegionNames(bundle.vision)  # of dog, cat, person, ball
    odds = np.array([[1.0, -2.0, 0.5, -4.0], [0.0, 3.0, -1.0, -5.0]])
    said = [("dog", 1.0), ("dogs", 1.0), ("terrier", 1.0), ("cat", 3.0), ("person", 0.5), ("woman", 0.5)]
    for noun, expected in said:
        assert names.of(odds, noun)[0] == expected
    assert np.isnan(names.of(odds, "mountain")).all()
    assert np.isnan(names.of(odds[:0], "dog")).all()
    boxes = np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]])
    assert names.at(odds, boxes, (0.5, 0.5, 1, 1), 0.5) == ["cat", "dog"]


def test_of_a_region_that_is_surely_a_cat_little_speaks_for_a_dog(bundle):
    names = RegionNames(bundle.vision)
    cat = np.array([[1.0, 3.0, 2.0, -4.0]])
    assert names.of(cat, "dog") == (1.0, 1.0 - 3.0)
    assert names.of(cat, "cat") == (3.0, 3.0 - 1.0)
    assert names.of(cat, "person") == (2.0, 2.0)  # of another family: both may be there
    both = np.array([[2.0, -3.0, 0.0, 0.0], [-3.0, 4.0, 0.0, 0.0]])
    assert names.of(both, "dog") == (2.0, 2.0)  # where the dog is, there is no cat
    assert names.of(both, "cat") == (4.0, 4.0)


def test_weights_that_a_file_from_before_has_are_those_of_the_first_parts():
    before = SupportModel(weights=(1.0, 0.5, 0.0, 2.0, 0.1, 3.0), usual=(0.0,) * 6)
    now = SupportModel(weights=(*before.weights, 0.0, 0.0), usual=(0.0,) * 8)
    evidence = [Evidence(-1.0, -2.0, 3.0, 0.5, 0.2, 0.1, -7.0, 7.0)]
    assert before.support(evidence) == pytest.approx(now.support(evidence))
    with pytest.raises(ConfigError, match="9 weights"):
        SupportModel(weights=(0.0,) * 9, usual=(0.0,) * 9)


@given(st.tuples(*[NUMBERS] * 6), st.integers(0, 5), st.floats(0, 10))
def test_more_evidence_never_means_less_support(numbers, place, more):
    auditing = SupportModel(weights=(1.0, 0.5, 0.0, 2.0, 0.1, 3.0))
    raised = [value + more * (at == place) for at, value in enumerate(numbers)]
    low, high = auditing.support([Evidence(*numbers), Evidence(*raised)])
    assert 0 <= low <= high <= 1


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ConfigError):
        SupportModel(bias=math.nan)
    with pytest.raises(ConfigError):
        SupportModel(least=2)


@pytest.mark.parametrize(
    ("text", "words", "places"),
    [
        ("A dog , running !", ["a", "dog", "running"], [0, 1, 3]),
        ("  spaced \n out  ", ["spaced", "out"], [0, 1]),
        ("", [], []),
    ],
)
def test_words_are_found_again_in_their_text(text, words, places):
    assert words_of(text, rule("self-critical")) == (words, places)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("dog", "dogs", True), ("puppy", "dog", True), ("sofa", "couch", True), ("dog", "cat", False), ("x", "y", False)],
)
def test_nouns_are_related_both_ways(one, other, expected):
    assert may_name_the_same(one, other) is may_name_the_same(other, one) is expected


def test_a_zebra_called_a_giraffe_is_caught_although_it_has_much_of_one():
    zebra = {"named": 1.0, "found": 0.5, "fits": 0.4}  # so much speaks for a giraffe, too: a long neck in the grass
    auditing = SupportModel(weights=(0, 0, 0, 0.3, 5.0, 5.0, 0.3, 0.5), usual=(0.0,) * 8, bias=-3.0, least=0.75)
    alone = Evidence(**zebra, unrivalled=1.0 - 6.0, concept=concept_odds("giraffe", [Concept("zebra", 0.9)]))
    beside = Evidence(**zebra, unrivalled=1.0, concept=concept_odds("giraffe", [Concept("giraffe", 0.7)]))
    before = replace(auditing, weights=auditing.weights[:6], usual=auditing.usual[:6])
    assert before.support([alone])[0] == before.support([beside])[0] >= auditing.least
    assert auditing.support([alone])[0] < auditing.least <= auditing.support([beside])[0]


@pytest.mark.parametrize("least", [0.0, 0.5, 0.76, 1.0])
def test_a_verdict_says_no_less_than_the_threshold_does(least):
    for support in np.linspace(0, 1, 101):
        kind = verdict_of(support, least) in ("the photo shows it", "nothing contradicts it")
        assert kind == (support >= least)
