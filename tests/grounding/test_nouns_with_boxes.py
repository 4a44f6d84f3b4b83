"""Which words of a sentence get boxes, how many, and which two may have the same one; and that captions follow."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.caption import Caption, WordTrace
from sightline.checkpoint.bundle import load_bundle
from sightline.grounding.box_chooser import BoxChooser
from sightline.grounding.caption_boxes import choose_boxes
from sightline.grounding.nouns import MANY, box_counts, may_share, noun_tags
from sightline.grounding.region_names import name_regions
from sightline.pipeline import Pipeline

torch.set_num_threads(1)


def boxed(sentence):
    words = sentence.split()
    counts = box_counts(words, noun_tags([words])[0])
    return {word: count for word, count in zip(words, counts, strict=True) if count}


@pytest.mark.parametrize(
    ("sentence", "heads"),
    [
        ("a boy with a beach ball", ["boy", "ball"]),
        ("a man holding a wii remote", ["man", "remote"]),
        ("a woman with a cell phone", ["woman", "phone"]),
        ("a red fire hydrant", ["hydrant"]),
        ("a dog in a dog house", ["dog", "house"]),
        ("a man woman and child", ["man", "woman", "child"]),  # a list, whose comma the model does not read
    ],
)
def test_only_the_head_of_a_compound_has_a_box(sentence, heads):
    words = sentence.split()
    counts = box_counts(words, noun_tags([words])[0])
    assert [word for word, count in zip(words, counts, strict=True) if count] == heads
    if sentence.count("dog") == 2:
        assert counts[1] == 1
        assert counts[-2] == 0


@pytest.mark.parametrize("word", ["group", "pair", "background", "front", "couple", "air"])
def test_nouns_that_name_no_thing_have_no_box(word):
    sentence = "a dog in the air" if word == "air" else f"a {word} of a dog"
    assert boxed(sentence) == {"dog": 1}


@pytest.mark.parametrize(
    ("sentence", "count"),
    [
        ("a dog runs", 1),
        ("dogs run", MANY),
        ("two dogs run", 2),
        ("three small brown dogs run", 3),
        ("a couple of dogs run", 2),
        ("two men with dogs", MANY),
    ],
)
def test_a_plural_has_as_many_boxes_as_its_number(sentence, count):
    found = boxed(sentence)
    assert found.get("dogs", found.get("dog")) == count


def test_a_pair_of_glasses_is_one_thing():
    assert boxed("a man in jeans and glasses") == {"man": 1, "jeans": 1, "glasses": 1}


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("man", "woman", False),
        ("dog", "stick", False),
        ("cat", "tie", True),  # worn
        ("women", "dresses", True),
        ("dog", "mouth", True),
        ("man", "person", True),
        ("dog", "dogs", True),
        ("cup", "table", False),
        ("zyzzyva", "qwerty", False),
    ],
)
def test_only_a_being_and_what_it_wears_or_has_share_a_box_and_names_of_one_thing(one, other, may):
    words = f"a {one} and a {other}".split()
    assert may_share(words, 1, 4) == may_share(words, 4, 1) == may


@pytest.mark.parametrize(
    ("sentence", "may"),
    [("a cup of coffee", True), ("a plate of hot food", True), ("a cup with coffee", False)],
)
def test_what_is_in_something_shares_its_box(sentence, may):
    words = sentence.split()
    assert may_share(words, 1, len(words) - 1) == may


@pytest.fixture(scope="module")
def seen():
    bundle = tiny_bundle()
    pipeline = Pipeline(bundle)
    with torch.inference_mode():
        return bundle, pipeline.scenes([pipeline.read(path) for path in sorted(EXAMPLES.glob("*.jpg"))])


def test_names_are_the_detectors_probabilities_and_one_where_it_has_none(seen):
    bundle, scenes = seen
    with torch.inference_mode():
        found = name_regions(bundle.vision, scenes, 1, ["two", "dogs", "near", "a", "table"], [0, 2, 0, 0, 1])
        regions = scenes.regions[1][scenes.region_mask[1]]
        dog = bundle.vision.naming(regions).sigmoid()[:, bundle.vision.config.names.index("dog")].numpy()
    assert found[1] == pytest.approx(dog, abs=1e-6)
    assert (found[[0, 2, 3, 4]] == 1).all()


def test_the_nouns_of_a_caption_point_by_scores_and_names(seen):
    """The words' attention says nothing, so that what the detector knows decides: against its formula."""
    bundle, scenes = seen
    bundle = replace(bundle, matcher=None, pointing=BoxChooser(least=0))
    n = scenes.boxes.shape[1]
    words = ("a", "dog", "and", "a", "ball")
    captions = [Caption(words, -1.0, (WordTrace(regions=np.full(n, 1 / n)),) * 5) for _ in range(len(scenes))]
    with torch.inference_mode():
        said = choose_boxes(bundle, captions, scenes)
        chances = bundle.vision.naming(scenes.regions).sigmoid().numpy()
    for photo, caption in enumerate(said):
        count, names = int(scenes.region_mask[photo].sum()), bundle.vision.config.names
        values = {
            at: scenes.scores[photo].numpy()[:count] * chances[photo, :count, names.index(words[at])] ** 0.5
            for at in (1, 4)
        }
        best = [scenes.boxes[photo, int(value.argmax())].tolist() for value in values.values()]
        boxes = [caption.trace[at].box for at in (1, 4)]
        assert boxes[0] != boxes[1]
        assert list(boxes[0]) == pytest.approx(best[0]) or list(boxes[1]) == pytest.approx(best[1])
        if best[0] != best[1]:
            assert [list(box) for box in boxes] == [pytest.approx(one) for one in best]


def test_the_file_that_comes_with_sightline_has_the_rule_and_its_own_numbers():
    rule = load_bundle().pointing
    assert (rule.matcher, rule.least, rule.objectness, rule.name) == (0.9, 0.1, 1.0, 0.5)
