"""Which caption is chosen: likelihood, fit and doubt, against the formula; what is said in place of what is doubted."""

import math
from dataclasses import replace

import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.batch import TextBatch
from sightline.decoding.decode import caption_words, decode
from sightline.decoding.rules import CAREFUL, Rules
from sightline.decoding.strategies import Beam
from sightline.errors import ConfigError
from sightline.grounding.calibration import SupportModel, features
from sightline.grounding.choice import (
    BETTER,
    IMPROBABLE,
    PHRASE,
    UNLIKELY,
    WORD,
    Candidate,
    CaptionChooser,
    Choice,
    EncodedPhotos,
    _supports,
    beside,
    is_sure,
    signs_of,
)
from sightline.pipeline import Pipeline
from sightline.scene import Concept
from sightline.vision.photo_colours import colour_spread

torch.set_num_threads(1)
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))
SHORT = replace(CAREFUL, max_words=8)
DOUBTFUL = Choice(
    doubt=5.0, shorten=1.0, second_look=1.0, support=SupportModel((0, 0, 0, 1.0, 1.0, 1.0), (0.0,) * 6, bias=0.0)
)


@pytest.fixture(scope="module")
def bundle():
    return tiny_bundle()


def candidate(text, support=(), score=-1.0, cosine=0.5):
    return Candidate(tuple(text.split()), score, score, cosine, tuple(range(len(support))), tuple(support), ())


def everything(pipeline, photos=PHOTOS[:3], rules=SHORT):
    """What the models make of photos, and their beams."""
    scenes = pipeline.scenes([pipeline.read(path) for path in photos])
    memory = pipeline.captioner.encode(scenes)
    decoded = decode(pipeline.captioner, memory, Beam(3, keep=3), rules, pipeline.bundle.captioner.vocabulary)
    return EncodedPhotos(memory, pipeline._grounder.photo_evidence(scenes)), decoded


def test_the_score_is_likelihood_plus_fit_less_doubt_plus_what_words_are_worth():
    one = candidate("dog cat", (0.9, 0.25), score=-3.0, cosine=0.4)
    words = WORD * (2 - PHRASE * (0.1 + 0.75))
    assert one.total(fit=10.0, doubt=2.0) == pytest.approx(-3.0 + 10 * 0.4 - 2 * (0.1 + 0.75) + words)
    assert replace(one, cosine=math.nan).total(10.0, 0.0) == -3.0
    assert (one.least, candidate("").least) == (0.25, 1.0)


def test_words_that_are_there_are_worth_a_little_likelihood():
    short, there = candidate("a dog", (0.95,), score=-1.0), candidate("a dog on the grass", (0.95, 0.95), score=-2.0)
    doubted = candidate("a dog on the grass", (0.95, 0.3), score=-2.0)
    assert there.total(30.0, 4.0) > short.total(30.0, 4.0) > doubted.total(30.0, 4.0)
    assert there.total(30.0, 0.0) < short.total(30.0, 0.0)  # where nothing was fitted, by likelihood and fit alone


@torch.no_grad()
def test_candidates_carry_the_matchers_cosine_and_the_support_of_their_nouns(bundle):
    pipeline = Pipeline(replace(bundle, choice=replace(DOUBTFUL, shorten=0.0, second_look=0.0)))
    photos, decoded = everything(pipeline)
    finds, images = bundle.matcher, photos.evidence.images
    found = pipeline._chooser.candidates(photos, decoded, SHORT)
    words = caption_words(decoded, bundle.captioner.vocabulary)
    for photo, own in enumerate(found):
        assert [one.words for one in own] == words[photo]
        for one in own:
            texts = finds.model.embed_texts(TextBatch.collate([one.words], finds.vocabulary))
            assert one.cosine == pytest.approx(float(images["vector"][photo] @ texts["vector"][0]), abs=1e-5)
            for at, evidence, support in zip(one.nouns, one.evidence, one.support, strict=True):
                regions = images["regions"][photo][images["mask"][photo]]
                expected = float((regions @ texts["words"][0, at + 1]).max())
                assert evidence.region_cosine == pytest.approx(expected, abs=1e-5)
                assert math.isnan(evidence.log_prob)
                assert support == pytest.approx(float(DOUBTFUL.support.support([evidence])[0]))


@torch.no_grad()
def test_doubtful_photos_are_looked_at_again_and_what_is_chosen_is_the_best_of_all(bundle):
    pipeline = Pipeline(replace(bundle, fit=1.0, choice=DOUBTFUL))
    asked = everything(pipeline)
    found = pipeline._chooser.candidates(*asked, SHORT)
    origins = {one.origin for own in found for one in own}
    assert origins <= {"beam", "beginning", "second"}
    assert "second" in origins
    for own in found:
        assert len({one.words for one in own if one.origin != "beginning"}) == len(
            [one for one in own if one.origin != "beginning"]
        )
    chosen = pipeline._chooser.choose(*asked, SHORT)
    for one, own in zip(chosen, found, strict=True):
        assert one.total(1.0, 5.0) == max(each.total(1.0, 5.0) for each in own)


@torch.no_grad()
def test_words_that_somebody_forbids_are_not_doubted_away(bundle):
    pipeline = Pipeline(replace(bundle, fit=1.0, choice=DOUBTFUL))
    asked, rules = everything(pipeline), replace(SHORT, must_not=(*SHORT.must_not, "zebra"))
    assert {one.origin for own in pipeline._chooser.candidates(*asked, rules) for one in own} == {"beam"}


@torch.no_grad()
def test_captions_that_no_beam_gave_have_the_captioners_likelihood(bundle):
    pipeline = Pipeline(replace(bundle, choice=DOUBTFUL))
    asked = everything(pipeline)
    memory, vocabulary = asked[0].memory, bundle.captioner.vocabulary
    for photo, own in enumerate(pipeline._chooser.candidates(*asked, SHORT)):
        row = {name: part[photo : photo + 1] for name, part in memory.items()}
        for one in own:
            ids = TextBatch.collate([one.words], vocabulary).ids
            assert one.log_prob == pytest.approx(float(pipeline.captioner.log_prob(row, ids)[0]), abs=0.02)
            assert one.origin == "beam" or one.score == one.log_prob


@torch.no_grad()
def test_what_must_be_said_is_not_taken_away(bundle):
    pipeline = Pipeline(replace(bundle, choice=DOUBTFUL))
    rules = Rules(8, must_include=("dog",))
    asked = everything(pipeline, rules=rules)
    for own in pipeline._chooser.candidates(*asked, rules):
        assert {one.origin for one in own} == {"beam"}
    assert all("dog" in pipeline.caption(path, rules=rules).words for path in PHOTOS[:3])


def test_a_concept_that_is_surer_takes_the_place_of_a_noun(bundle):
    choice = replace(DOUBTFUL, shorten=0.0, second_look=0.0, swap=-2.0)
    pipeline = Pipeline(replace(bundle, choice=choice))
    one = candidate("dog sits with cat", score=-1.0)
    one = replace(one, nouns=(0, 3), support=(0.2, 0.9))
    concepts = [Concept("cat", 0.99), Concept("ball", 0.9), Concept("rabbit", 0.8), Concept("man", 0.7)]
    with torch.no_grad():
        evidence = pipeline._grounder.photo_evidence(pipeline.scenes([pipeline.read(PHOTOS[0])]))
        evidence.concepts = [concepts]
        found = list(pipeline._chooser.other_nouns(one, 0, evidence))
    words, origin, gain = found[0]
    assert (" ".join(words), origin) == ("rabbit sits with cat", "swap")  # a ball is no animal, a cat was said
    assert gain == pytest.approx(0.8 - 0.2)
    assert len(found) == 1  # a cat is an animal, so that "animal" is said already


def test_another_animal_that_the_photo_is_probably_of_leaves_a_noun_the_rest():
    box = (0.0, 0.0, 1.0, 1.0)
    assert beside(Concept("tiger", 0.8), "zebra", 0.95) == pytest.approx(0.2)
    assert beside(Concept("tiger", 0.8), "zebra", 0.1) == 0.1
    assert beside(Concept("tiger", 0.8), "cat", 0.95) == 0.95  # it is one
    assert beside(Concept("tiger", 0.8), "tree", 0.95) == 0.95  # both may be there
    assert beside(Concept("tiger", 0.8, box), "zebra", 0.95) == 0.95  # the region may be another one's
    assert beside(Concept("egret", 0.8), "swan", 0.95) == 0.95  # both are birds
    assert beside(Concept("race car", 0.8), "motorcycle", 0.95) == 0.95
    assert beside(Concept("antelope", 0.8), "giraffes", 0.95) == 0.95  # no class is a giraffe
    assert beside(Concept("spotted cat", 0.8), "zebra", 0.95) == 0.95  # nor this, but a kind of several


@torch.no_grad()
def test_a_landscape_is_said_alone_where_nothing_supports_what_is_said_to_be_in_it(bundle):
    support = SupportModel(weights=(0,) * 7 + (1.0,), usual=(0.0,) * 8, bias=-2.0)  # by concepts alone
    unknown, zebra = 1 / (1 + math.exp(2)), 1 / (1 + math.exp(2 - math.log(0.9 / 0.1)))
    pipeline = Pipeline(replace(bundle, choice=Choice(swap=2.0, vague=0.5, support=support)))
    evidence = pipeline._grounder.photo_evidence(pipeline.scenes([pipeline.read(PHOTOS[0])]))
    box = (0.0, 0.0, 1.0, 1.0)
    one = replace(candidate("a sheep standing on top of a mountain"), nouns=(1, 7), support=(0.9, 0.9))

    def gain(*concepts, said=one, chooser=pipeline._chooser):
        evidence.concepts = [concepts]
        found = [other for other in chooser.other_nouns(said, 0, evidence) if other[1] == "place"]
        assert all(" ".join(words) == "a view of a mountain" for words, _, _ in found)
        return found[0][2] if found else None

    assert zebra > UNLIKELY > unknown
    assert gain() == pytest.approx(UNLIKELY - unknown)
    assert gain(Concept("zebra", 0.9, box)) == pytest.approx(UNLIKELY - zebra)  # an animal is there
    assert gain(Concept("sheep", 0.3)) is None  # the photo may be of sheep
    assert gain(said=replace(one, support=(0.1, 0.4))) is None  # the mountain is doubted as well
    never = Pipeline(replace(bundle, choice=Choice(swap=0.5, support=support)))
    assert gain(chooser=never._chooser) is None


def test_what_is_said_instead_is_as_long_as_asked_for(bundle):
    chooser = Pipeline(bundle)._chooser
    assert chooser._is_sayable(("a", "dog"), Rules(2, min_words=2))
    assert not chooser._is_sayable(("a", "dog"), Rules(4, min_words=3))
    assert not chooser._is_sayable(("a", "dog"), Rules(1))


def test_a_word_for_its_kind_may_take_the_place_of_the_least_supported_noun(bundle):
    pipeline = Pipeline(replace(bundle, choice=DOUBTFUL))
    one = replace(candidate("dog on table"), nouns=(0, 2), support=(0.2, 0.9))
    with torch.no_grad():
        evidence = pipeline._grounder.photo_evidence(pipeline.scenes([pipeline.read(PHOTOS[0])]))
        evidence.concepts = [()]
        ((words, origin, gain),) = pipeline._chooser.other_nouns(one, 0, evidence)
        support = DOUBTFUL.support.support(evidence.of(0, ["animal"], [0]), ["animal"])[0]
        assert list(pipeline._chooser.other_nouns(replace(one, words=("dog", "near", "cat")), 0, evidence)) == []
    assert (words, origin) == (("animal", "on", "table"), "vague")
    assert gain == pytest.approx(support - 0.2)


def test_a_name_in_a_nouns_place_is_said_and_does_not_lower_the_confidence(bundle, monkeypatch):
    pipeline = Pipeline(replace(bundle, choice=Choice(swap=-2.0)))
    plain = Pipeline(bundle).caption(PHOTOS[0])
    scenes = pipeline.scenes([pipeline.read(PHOTOS[0])])

    def others(self, one, *_):
        yield (*one.words[:-1], "ball"), "swap", 0.5

    monkeypatch.setattr(CaptionChooser, "other_nouns", others)
    said = pipeline.caption(PHOTOS[0])
    assert said.words == (*plain.words[:-1], "ball") != plain.words
    assert said.log_prob != plain.log_prob
    (_, numbers, _), *_ = pipeline.choose_captions(scenes)
    assert numbers[:2] == pytest.approx(features(plain)[:2], abs=1e-4)


def test_a_caption_is_reworded_with_its_own_likelihood_and_the_confidence_it_had(bundle, monkeypatch):
    pipeline = Pipeline(replace(bundle, choice=Choice(swap=0.9, vague=0.9)))
    plain = pipeline.caption(PHOTOS[0])
    monkeypatch.setattr("sightline.grounding.choice.reword", lambda words, _: (*words[:-1], "ball"))
    caption = pipeline.caption(PHOTOS[0])
    assert caption.words == (*plain.words[:-1], "ball") != plain.words
    assert caption.log_prob != plain.log_prob
    scenes = pipeline.scenes([pipeline.read(PHOTOS[0])])
    (_, numbers, _), *_ = pipeline.choose_captions(scenes)
    assert numbers[:2] == pytest.approx(features(plain)[:2], abs=1e-4)
    monkeypatch.setattr("sightline.grounding.choice.reword", lambda words, _: (*words[:-1], "xyzzys"))
    assert pipeline.caption(PHOTOS[0]).words == plain.words  # the captioner does not know it


@torch.no_grad()
def test_no_caption_ends_in_what_nothing_supports(bundle, monkeypatch):
    pipeline = Pipeline(replace(bundle, choice=Choice(swap=0.9, vague=0.9)))
    chooser, photo = pipeline._chooser, PHOTOS[0]
    photos, _ = everything(pipeline, [photo])
    long = tuple("a dog sitting on a cat".split())
    (whole,) = chooser._score([(0, long, "beam")], photos)
    whole = replace(whole, cosine=-1.0)  # the shorter one fits better

    def ending(supports, rules=CAREFUL):
        asked = []
        monkeypatch.setattr(
            chooser, "_alone", lambda _, photo, words, at: asked.append(words[at]) or supports[words[at]]
        )
        (chosen,) = chooser._end_sooner([whole], photos, rules)
        return " ".join(chosen.words), asked, chosen

    assert ending({"cat": IMPROBABLE, "dog": 0.0})[:2] == ("a dog sitting on a cat", ["cat"])
    text, asked, chosen = ending({"cat": 0.1, "dog": 0.1})
    assert (text, asked) == ("a dog", ["cat"])  # of the first noun nobody asks
    assert chosen.instead_of == whole
    assert signs_of(chosen, ()).least == min(chosen.least, whole.least)  # it is no surer
    for cosine, text in ((BETTER + 0.01, "a dog sitting on a cat"), (BETTER - 0.01, "a dog"), (math.nan, "a dog")):
        fitting = replace(whole, cosine=chosen.cosine + cosine)
        assert " ".join(chooser._end_sooner([fitting], photos, CAREFUL)[0].words) == text
    (certain,) = chooser._end_sooner([replace(whole, log_prob=-1.0)], photos, CAREFUL)
    assert certain.words == long
    before = replace(whole, support=(0.9, 0.1), instead_of=replace(whole, support=(0.05, 0.1)))  # a noun was replaced
    (twice,) = chooser._end_sooner([before], photos, CAREFUL)
    assert (twice.instead_of, twice.left_out) == (before.instead_of, 0.1)
    monkeypatch.setattr("sightline.grounding.choice.reword", lambda words, _: (*words[:-1], "ball"))
    (twice,) = chooser._reword([twice], photos, CAREFUL)
    assert (twice.words, twice.left_out) == (("a", "ball"), 0.1)
    assert chosen.log_prob == pytest.approx(chooser._score([(0, ("a", "dog"), "x")], photos)[0].log_prob, abs=1e-4)
    whole, before_room = replace(whole, words=(*long[:-1], "room")), whole
    assert ending({"room": IMPROBABLE})[0] == "a dog"  # to say so would tell little
    assert ending({"room": UNLIKELY})[0] == "a dog sitting on a room"
    whole = before_room
    assert ending({"cat": 0.1}, replace(CAREFUL, min_words=4))[0] == "a dog sitting on a cat"


def test_a_noun_is_asked_for_alone_and_so_is_its_kind(bundle):
    pipeline = Pipeline(replace(bundle, choice=Choice(swap=0.9, vague=0.9)))
    photos, _ = everything(pipeline, PHOTOS[:1])
    chooser, evidence = pipeline._chooser, photos.evidence
    support = chooser.choice.support
    expected = max(float(support.support(evidence.of(0, [word], [0]), [word])[0]) for word in ("dog", "animal"))
    assert chooser._alone(evidence, 0, ("a", "dog"), 1) == pytest.approx(expected)


def test_colours_are_those_of_the_pixels(bundle, monkeypatch):
    pipeline = Pipeline(replace(bundle, choice=Choice(swap=0.9, vague=0.9)))
    spreads = []
    monkeypatch.setattr(
        "sightline.grounding.choice.with_true_colours", lambda words, spread: spreads.append(spread) or words
    )
    photos = [pipeline.read(path) for path in PHOTOS[:2]]
    pipeline.caption(photos)
    assert spreads == [colour_spread(photo.pixels) for photo in photos]
    with pytest.raises(ValueError, match="shorter"):
        pipeline.choose_captions(pipeline.scenes(photos), pixels=[photos[0].pixels])
    pipeline.choose_captions(pipeline.scenes(photos))  # scenes alone have no pixels
    assert [math.isnan(spread) for spread in spreads[-2:]] == [True, True]


def test_a_caption_too_short_without_its_false_colours_is_reworded_all_the_same(bundle, monkeypatch):
    chooser = Pipeline(replace(bundle, choice=Choice(swap=0.9, vague=0.9)))._chooser
    monkeypatch.setattr("sightline.grounding.choice.with_true_colours", lambda words, _: words[-2:])
    monkeypatch.setattr("sightline.grounding.choice.reword", lambda words, _: (*words[:-1], "ball"))
    photos, _ = everything(Pipeline(bundle), PHOTOS[:1])
    (whole,) = chooser._score([(0, ("a", "dog", "on", "a", "cat"), "beam")], photos)
    for least, expected in ((1, "a ball"), (4, "a dog on a ball"), (9, "a dog on a cat")):
        (chosen,) = chooser._reword([whole], photos, replace(CAREFUL, min_words=least))
        assert " ".join(chosen.words) == expected


@torch.no_grad()
def test_what_is_alone_is_not_said_to_be_with_others_of_its_kind(bundle, monkeypatch):
    chooser = Pipeline(bundle)._chooser
    photos, decoded = everything(Pipeline(bundle))
    (first, *rest), *_ = chooser.candidates(photos, decoded, SHORT)
    monkeypatch.setattr("sightline.grounding.choice.is_alone", lambda words: words == first.words)
    assert first.words not in [one.words for one in chooser.candidates(photos, decoded, SHORT)[0]]
    monkeypatch.setattr("sightline.grounding.choice.is_alone", lambda words: True)
    assert len(chooser.candidates(photos, decoded, SHORT)[0]) == 1 + len(rest)


def test_a_region_must_be_surer_than_a_photo_for_its_name_to_take_a_nouns_place():
    box = (0.0, 0.0, 1.0, 1.0)
    assert [is_sure(Concept("fox", score)) for score in (0.3, 0.6, 0.9)] == [False, True, True]
    assert [is_sure(Concept("fox", score, box)) for score in (0.4, 0.6, 0.9)] == [False, False, True]


def test_what_speaks_for_a_caption_is_told_with_it():
    one = candidate("a dog", (0.75,), cosine=0.5)
    assert signs_of(one, [Concept("dog", 0.9), Concept("beach", 0.4)]) == (0.5, 0.75, 1 - 0.4)
    assert signs_of(one, []) == (0.5, 0.75, 1.0)


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ConfigError, match="doubt"):
        Choice(doubt=math.nan)


def test_what_begins_a_name_is_doubted_as_the_name_is():
    one = replace(candidate("a cell phone and a phone"), nouns=(2, 5), support=(0.2, 0.3))
    other = replace(candidate("a cell phone"), nouns=(2,), support=(0.1,))
    assert _supports([one, other]) == {"cell": 0.2, "phone": 0.1}
