import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from box_samples import pixel_overlap as iou
from sightline import Caption, WordTrace
from sightline.data.records import GroundedPhoto, GroundedPrediction, GroundedSentence, GroundedWord
from sightline.errors import CountError, DuplicateRecordError, MissingRecordError
from sightline.metrics.grounding_accuracy import AttentionAccuracy, GroundingF1, mentions, overlaps_enough
from sightline.scene import box_iou

LABELS = ("dog", "man", "ball")
corner = st.integers(0, 6)
box = st.tuples(corner, corner, st.integers(0, 6), st.integers(0, 6)).map(
    lambda b: (float(b[0]), float(b[1]), float(b[0] + b[2]), float(b[1] + b[3]))
)


@st.composite
def photos(draw, id="1"):
    sentences = []
    for _ in range(draw(st.integers(1, 3))):
        tokens = draw(st.lists(st.sampled_from(["a", "dogs", "men", "balls", "red"]), min_size=3, max_size=5))
        places = draw(st.lists(st.integers(0, len(tokens) - 1), unique=True, max_size=3))
        words = [
            GroundedWord(i, draw(st.sampled_from(LABELS)), tuple(draw(st.lists(box, min_size=1, max_size=2))))
            for i in sorted(places)
        ]
        sentences.append(GroundedSentence(tuple(tokens), tuple(words)))
    return GroundedPhoto(id, tuple(sentences))


predictions = st.lists(st.builds(GroundedPrediction, st.integers(0, 5), st.sampled_from(LABELS), box))


def pixels(b):
    return {(x, y) for x in range(int(b[0]), int(b[2]) + 1) for y in range(int(b[1]), int(b[3]) + 1)}


@given(box, box)
def test_iou_counts_shared_pixels(one, other):
    share = len(pixels(one) & pixels(other)) / len(pixels(one) | pixels(other))
    assert box_iou(np.array([one]), np.array([other]), border=1)[0, 0] == share == iou(one, other)


def test_half_is_not_enough_and_any_box_will_do():
    half = (0.0, 0.0, 9.0, 4.0)
    assert iou(half, (0.0, 0.0, 9.0, 9.0)) == 0.5
    assert not overlaps_enough([half], [(0.0, 0.0, 9.0, 9.0)])
    assert overlaps_enough([half], [(50.0, 50.0, 60.0, 60.0), half])


def mean(values):
    return sum(values) / len(values) if values else 0.0


@given(st.data())
def test_attention_accuracy_is_the_mean_over_classes_of_the_share_of_right_words(data):
    metric, rows, oracle_rows = AttentionAccuracy(), [], []
    for id in ("1", "2"):
        photo = data.draw(photos(id))
        regions = data.draw(st.lists(box, min_size=1, max_size=3))
        pointed = [data.draw(st.dictionaries(st.integers(0, 4), st.sampled_from(regions))) for _ in photo.sentences]
        metric.update(photo, pointed, regions)
        for sentence, points in zip(photo.sentences, pointed, strict=True):
            for word in sentence.words:
                right = word.index in points and any(iou(points[word.index], b) > 0.5 for b in word.boxes)
                rows.append((word.label, right))
                oracle_rows.append((word.label, any(iou(r, b) > 0.5 for r in regions for b in word.boxes)))
    scores = metric.compute()
    for told, naive in ((scores.accuracy, rows), (scores.oracle, oracle_rows)):
        assert told.count == len(naive)
        by_class = [mean([r for label, r in naive if label == wanted]) for wanted in {label for label, _ in naive}]
        assert told.macro == pytest.approx(mean(by_class))
        assert told.micro == pytest.approx(mean([r for _, r in naive]))
    assert scores.accuracy.micro <= scores.oracle.micro


def naive_f1(pairs):
    """The published rule, written as loops over (photo, predictions)."""
    lemmas = {"dogs": "dog", "men": "man", "balls": "ball"}
    precision = {"all": [], "loc": []}
    recall = {"all": [], "loc": []}
    classes = {w.label for photo, _ in pairs for s in photo.sentences for w in s.words}
    for photo, predicted in pairs:
        for sentence in photo.sentences:
            grounded = [w.index for w in sentence.words]
            free = [lemmas.get(t, t) for i, t in enumerate(sentence.tokens) if i not in grounded]
            for p in predicted:
                same = [w for w in sentence.words if w.label == p.label]
                if same:
                    right = max(iou(p.box, b) for b in same[0].boxes) > 0.5
                    precision["all"].append((p.label, right))
                    precision["loc"].append((p.label, right))
                elif p.label not in free:
                    precision["all"].append((p.label, False))
            for w in sentence.words:
                same = [p for p in predicted if p.label == w.label]
                right = bool(same) and max(iou(same[0].box, b) for b in w.boxes) > 0.5
                recall["all"].append((w.label, right))
                if same:
                    recall["loc"].append((w.label, right))

    def macro(rows):
        return sum(mean([r for label, r in rows if label == c]) for c in {label for label, _ in rows}) / max(
            1, len(classes)
        )

    return {
        f"{name}_{kind}": (macro(rows), mean([r for _, r in rows]))
        for name, table in (("precision", precision), ("recall", recall))
        for kind, rows in table.items()
    }


@given(st.data())
def test_generated_sentences_are_scored_by_the_published_rule(data):
    pairs = [(data.draw(photos(id)), data.draw(predictions)) for id in ("1", "2")]
    metric = GroundingF1()
    for photo, predicted in pairs:
        metric.update(photo, predicted)
    scores = metric.compute()
    for name, (macro, micro) in naive_f1(pairs).items():
        assert getattr(scores, name).macro == pytest.approx(macro), name
        assert getattr(scores, name).micro == pytest.approx(micro), name
    for kind in ("all", "loc"):
        p, r = getattr(scores, f"precision_{kind}").macro, getattr(scores, f"recall_{kind}").macro
        assert scores.f1()[f"F1_{kind}"] == pytest.approx(200 * p * r / (p + r) if p + r else 0.0)


def test_one_photo_by_hand():
    dog, man = GroundedWord(1, "dog", ((0, 0, 9, 9),)), GroundedWord(4, "man", ((20, 20, 29, 29),))
    photo = GroundedPhoto("1", (GroundedSentence(("a", "dog", "and", "a", "man"), (dog, man)),))
    metric = GroundingF1()
    metric.update(photo, [GroundedPrediction(1, "dog", (0, 0, 9, 9)), GroundedPrediction(3, "ball", (0, 0, 1, 1))])
    scores = metric.compute()
    assert metric.by_class("precision_all") == {"dog": [("1", True)], "ball": [("1", False)]}
    assert (scores.precision_all.macro, scores.recall_all.macro) == (0.5, 0.5)
    assert (scores.precision_loc.macro, scores.recall_loc.macro) == (0.5, 0.5)
    assert scores.f1() == {"F1_all": 50.0, "F1_loc": 50.0, "F1_all micro": 50.0, "F1_loc micro": 100.0}


def test_mistakes_are_refused():
    photo = GroundedPhoto("1", (GroundedSentence(("a", "dog")),))
    accuracy, f1 = AttentionAccuracy(), GroundingF1()
    with pytest.raises(CountError, match="2 predictions for 1 sentences"):
        accuracy.update(photo, [{}, {}], [])
    accuracy.update(photo, [{}], [])
    f1.update(photo, [])
    with pytest.raises(DuplicateRecordError):
        accuracy.update(photo, [{}], [])
    with pytest.raises(DuplicateRecordError):
        f1.update(photo, [])
    with pytest.raises(MissingRecordError, match="no reference sentence"):
        f1.update(GroundedPhoto("2", ()), [])
    accuracy.reset()
    assert accuracy.compute().accuracy.count == 0


def test_a_caption_mentions_the_classes_of_its_words_that_point_somewhere():
    trace = (WordTrace(), WordTrace(box=(0.0, 0.0, 0.5, 0.5)), WordTrace(box=(0.5, 0.5, 1.0, 1.0)), WordTrace())
    caption = Caption(("two", "dogs", "run", "man"), -1.0, trace)
    assert mentions(caption, (200, 100), {"dog", "man"}) == [GroundedPrediction(1, "dog", (0.0, 0.0, 100.0, 50.0))]


def test_only_nouns_mention_a_class():
    box = (0.0, 0.0, 0.5, 0.5)
    caption = Caption(("kids", "dress", "a", "dog"), -1.0, (WordTrace(box=box),) * 4)
    assert [one.label for one in mentions(caption, (100, 100), {"dress", "dog"})] == ["dog"]
    caption = Caption(("a", "woman", "wearing", "a", "dress"), -1.0, (WordTrace(box=box),) * 5)
    assert [one.label for one in mentions(caption, (100, 100), {"dress", "dog"})] == ["dress"]
