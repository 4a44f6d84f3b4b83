"""Where in a photo the nouns of a sentence are, and which the photo does not support."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from bundle_samples import EXAMPLES, SIZE, tiny_bundle
from sightline.batch import TextBatch
from sightline.checkpoint.bundle import Bundle
from sightline.errors import ConfigError, CountError
from sightline.grounding.noun_scores import words_of
from sightline.grounding.nouns import PLACES, may_name_the_same
from sightline.models.end_to_end import Reader
from sightline.models.sim_trans import SimTransConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.pipeline import Pipeline
from sightline.text.lemmas import lemma
from sightline.text.tagger import Tagger
from sightline.text.vocabulary import rule
from sightline.vision.grid_encoder import GridEncoder

torch.set_num_threads(1)
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))
TEXTS = ["A dog sits on a table .", "two cats, and a ball", "", "!", "the woman in front of the cup", "a " * 30 + "dog"]


@pytest.fixture(scope="module")
def bundle():
    return tiny_bundle()


@pytest.fixture(scope="module")
def pipeline(bundle):
    return Pipeline(bundle)


def test_every_noun_of_a_sentence_has_a_box_and_a_score_and_no_other_word_has(pipeline):
    found = pipeline.ground(PHOTOS[0], "A dog sits on the red table.")
    assert found.words == ("a", "dog", "sits", "on", "the", "red", "table")
    assert [trace.box is not None for trace in found.trace] == [False, True, False, False, False, False, True]
    for trace in found.trace:
        assert (trace.box is None) == (trace.score is None)
        assert trace.score is None or 0 <= trace.score <= 1


def test_boxes_are_in_pixels_of_the_upright_photo(pipeline, tmp_path):
    turn = Image.Exif()
    turn[0x0112] = 6  # shown turned by 270 degrees
    Image.open(PHOTOS[2]).resize((SIZE, 2 * SIZE)).save(tmp_path / "lying.png", exif=turn)
    found = pipeline.ground(tmp_path / "lying.png", "a dog")
    assert found.size == (2 * SIZE, SIZE)
    scale = (2 * SIZE, SIZE, 2 * SIZE, SIZE)
    assert found.to_json()["words"][1]["box"] == pytest.approx(np.array(found.trace[1].box) * scale, abs=0.06)


def test_many_photos_are_grounded_as_each_is_alone(pipeline):
    sentences = ["a dog", "two cats in the park", "a man holds a ball", "a cup", "the woman", "a cat"]
    photos = [PHOTOS[i % len(PHOTOS)] for i in range(len(sentences))] * 2
    together = pipeline.ground_many(photos, sentences * 2)
    for photo, sentence, many in zip(photos, sentences * 2, together, strict=True):
        one = pipeline.ground(photo, sentence)
        assert many.words == one.words
        assert [t.box for t in many.trace] == [t.box if t.box is None else pytest.approx(t.box) for t in one.trace]
    assert pipeline.ground_many([], []) == []


def test_a_caption_is_grounded_where_it_points_by_itself(pipeline):
    """The same rule and the same attention: the words, said again, are where they were."""
    said = pipeline.caption(PHOTOS[0])
    again = pipeline.ground(PHOTOS[0], said.text)
    for own, other in zip(said.trace, again.trace, strict=True):
        assert own.box is None or own.box == pytest.approx(other.box, abs=1e-4)


@pytest.mark.parametrize("options", [{"matcher": False}, {"other_words": True}], ids=["no matcher", "other words"])
def test_a_matcher_may_be_missing_or_know_other_words(options):
    found = Pipeline(tiny_bundle(**options)).ground(PHOTOS[0], "a dog and a man")
    assert found.trace[1].box is not None


def test_the_matcher_has_a_say(bundle, pipeline):
    alone = Pipeline(replace(bundle, matcher=None))
    assert alone.ground(PHOTOS[0], "a dog").trace[1].score != pipeline.ground(PHOTOS[0], "a dog").trace[1].score


@pytest.mark.parametrize("sentence", ["a zyzzyva", "x" * 300, "a dog " * 60, "naïve façade 犬", "a\ndog"])
def test_strange_sentences_are_grounded_too(pipeline, sentence):
    assert pipeline.ground(PHOTOS[0], sentence).words


def test_a_noun_that_no_model_knows_has_no_box(pipeline):
    dog, zyzzyva = pipeline.ground(PHOTOS[0], "a dog and a zyzzyva").trace[1::3]
    assert dog.box is not None
    assert (zyzzyva.box, zyzzyva.score) == (None, None)


@pytest.mark.parametrize("sentence", ["", "  ", "!?"])
def test_a_sentence_without_words_is_an_error(pipeline, sentence):
    with pytest.raises(ConfigError, match="no word"):
        pipeline.ground(PHOTOS[0], sentence)


def test_photos_and_sentences_must_be_as_many(pipeline):
    with pytest.raises(CountError):
        pipeline.ground_many(PHOTOS[:2], ["a dog"])


def test_the_json_form_of_a_grounding_is_that_of_the_documentation(pipeline):
    told = pipeline.ground(PHOTOS[1], "A dog, and a cat!").to_json()
    assert list(told) == ["path", "sentence", "size", "words"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["path"], told["sentence"]) == (str(PHOTOS[1]), "A dog, and a cat!")
    assert told["size"] == list(Image.open(PHOTOS[1]).size)
    assert [word["word"] for word in told["words"]] == ["a", "dog", "and", "a", "cat"]
    for word in told["words"]:
        assert set(word) == {"word", "box", "boxes", "score"}
        assert word["boxes"][:1] == ([] if word["box"] is None else [word["box"]])
        if word["box"] is not None:
            x1, y1, x2, y2 = word["box"]
            assert 0 <= x1 <= x2 <= told["size"][0]
            assert 0 <= y1 <= y2 <= told["size"][1]


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
        ("a lot of cars in a parking lot", ["cars", "lot"]),
        ("the view of a table at night time", ["table"]),
    ],
)
def test_nouns_that_name_no_thing_are_not_audited(pipeline, text, nouns):
    (audit,) = pipeline.audit(PHOTOS[0], text, least=1.0)
    assert [noun.word for noun in audit.nouns] == nouns
    assert pipeline.ground(PHOTOS[0], text).sentence == text  # where words point is another question


def test_the_json_form_of_an_audit_is_that_of_the_documentation(pipeline):
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
            assert len({lemma(name, "n") for name in noun.instead}) == len(noun.instead)  # nor a thing and its plural


def test_of_a_name_of_two_words_the_second_is_audited(pipeline):
    (audit,) = pipeline.audit(PHOTOS[0], "a snow leopard in the snow near a cell phone")
    assert [(noun.word, noun.index) for noun in audit.nouns] == [("leopard", 2), ("snow", 5), ("phone", 9)]


def test_the_evidence_is_what_each_model_says(pipeline, bundle):
    photo, text = PHOTOS[0], "a dog on the table"
    scene = pipeline.scenes([pipeline.read(photo)])
    (audit,) = pipeline.audit(photo, text)
    dog, table = audit.nouns
    with torch.no_grad():
        words, finds = bundle.captioner.vocabulary, bundle.matcher
        model = bundle.captioner.model
        log_probs = model(model.encode(scene), torch.tensor([words.encode(text.split())])).log_probs[0]
        assert dog.evidence.log_prob == pytest.approx(float(log_probs[1, words.id("dog")]), abs=0.05)  # of 8 bits
        assert dog.evidence.log_prob_alone == pytest.approx(dog.evidence.log_prob, abs=1e-4)  # also after "a"
        assert dog.evidence.log_rank == math.log(words.id("dog"))
        odds = bundle.vision.naming(scene.regions[0][scene.region_mask[0]])
        assert dog.evidence.name_odds == pytest.approx(float(odds[:, 0].max()), rel=1e-4)
        images, texts = finds.model.embed_images(scene), TextBatch.collate([["a", "dog"]], finds.vocabulary)
        asked = finds.model.embed_texts(texts)
        assert dog.evidence.region_cosine == pytest.approx(
            float(finds.model.grounding(images, asked)[0, 2].max()), abs=1e-5
        )
        assert dog.evidence.photo_cosine == pytest.approx(float(images["vector"] @ asked["vector"].T), abs=1e-5)
    assert math.isnan(table.evidence.name_odds)  # the detector has no name for it


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
    assert [name for name, value in evidence._asdict().items() if math.isnan(value)] == [
        "name_odds",
        "region_cosine",
        "name_margin",
    ]


@pytest.mark.parametrize("parts", [{"matcher": None}], ids=["no matcher"])
def test_models_without_a_part_audit_with_the_rest(bundle, parts):
    (audit,) = Pipeline(replace(bundle, **parts)).audit(PHOTOS[0], "a dog")
    assert math.isnan(audit.nouns[0].evidence.region_cosine)
    assert math.isfinite(audit.nouns[0].evidence.log_prob)


def test_a_vision_model_of_grid_cells_and_a_global_matcher_serve_too(bundle):
    words = bundle.captioner.vocabulary
    says = SimTransConfig(region_width=1280, hidden_size=16, heads=2, layers=1, ffn_size=16).build(len(words)).eval()
    finds = VSEPPConfig(region_width=1280, vector_width=1280, size=6, word_size=5).build(len(words)).eval()
    vision = GridEncoder("lite0", SIZE).eval()
    pipeline = Pipeline(Bundle(vision, Reader(says, words, "scan"), Reader(finds, words, "scan")))
    (noun,) = pipeline.audit(PHOTOS[0], "A dog .")[0].nouns
    assert [name for name, value in noun.evidence._asdict().items() if math.isnan(value)] == [
        "name_odds",
        "region_cosine",
        "name_margin",
        "concept_odds",
    ]
    assert pipeline.ground(PHOTOS[0], "A dog .").trace[1].box is not None


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
