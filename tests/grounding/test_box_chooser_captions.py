"""Captions whose nouns point at boxes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bundle_samples import EXAMPLES, tiny_bundle
from sightline.batch import TextBatch
from sightline.caption import Caption, WordTrace
from sightline.checkpoint.bundle import load_bundle
from sightline.grounding.box_chooser import BoxChooser, choose_boxes
from sightline.pipeline import Pipeline

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def seen():
    bundle = tiny_bundle()
    pipeline = Pipeline(bundle)
    with torch.inference_mode():
        return bundle, pipeline.scenes([pipeline.read(path) for path in sorted(EXAMPLES.glob("*.jpg"))])


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


def test_words_that_the_matcher_knows_point_where_the_pointer_does(seen):
    """Against the pointer asked by hand; a word that the matcher does not know points where the captioner looked."""
    scenes = seen[1]
    bundle = tiny_bundle(pointer=True)
    looked = np.eye(scenes.boxes.shape[1], dtype=np.float32)[3]  # at the fourth region
    known, unknown = (Caption(("a", noun), -1.0, (WordTrace(regions=looked),) * 2) for noun in ("dog", "wug"))
    rule, count = BoxChooser(least=0, objectness=0), len(scenes)
    with torch.inference_mode():
        by_pointer = choose_boxes(bundle, [known] * count, scenes, rule)
        by_captioner = choose_boxes(bundle, [unknown] * count, scenes, rule)
        texts = TextBatch.collate([known.words] * count, bundle.matcher.vocabulary)
        images, words = bundle.matcher.model.embed_images(scenes), bundle.matcher.model.embed_texts(texts)["words"]
        output = bundle.pointer.point(images, words[:, 2:3], scenes)
    for photo in range(count):
        best = int(output.weights[photo, 0].argmax())
        assert by_pointer[photo].trace[1].box == pytest.approx(output.boxes[photo, 0, best].tolist())
        assert by_captioner[photo].trace[1].box == pytest.approx(scenes.boxes[photo, 3].tolist())


def test_the_file_that_comes_with_sightline_has_a_pointer_and_the_rule_with_its_own_numbers():
    bundle = load_bundle()
    rule = bundle.pointing
    assert bundle.pointer is not None
    assert (rule.matcher, rule.least, rule.objectness, rule.name) == (0.9, 0.1, 1.0, 0.5)
