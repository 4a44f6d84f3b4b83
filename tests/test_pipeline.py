"""From a photo of any form to a grounded caption, one or many."""

import io
import itertools
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import sightline
from bundle_samples import EXAMPLES, SIZE, WORDS, draw_photo, tiny_bundle
from sightline.batch import TextBatch
from sightline.checkpoint.bundle import Bundle, save_bundle
from sightline.decoding.decode import captions
from sightline.decoding.rules import CAREFUL, Rules, rules_of
from sightline.decoding.strategies import Beam, Greedy
from sightline.errors import ConfigError, ImageError
from sightline.grounding.calibration import Calibration
from sightline.grounding.nouns import PLACES
from sightline.models.end_to_end import Reader
from sightline.models.sim_trans import SimTransConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.pipeline import Pipeline, load
from sightline.text.tagger import Tagger
from sightline.vision.fold_batch_norm import fold_int8
from sightline.vision.grid_encoder import GridEncoder
from sightline.vision.images import read_pixels

torch.set_num_threads(1)
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))
SOME = Rules(max_words=8)  # of a random model's words, the later ones are nearly as likely as others
BRIEF = Rules(max_words=6, must_include=("dog",))  # so that there is a noun, whatever else a random model says


@pytest.fixture(scope="module")
def bundle():
    return tiny_bundle()


@pytest.fixture(scope="module")
def pipeline(bundle):
    return Pipeline(bundle)


@pytest.fixture(scope="module")
def said(pipeline):
    """What the model says about the example photos, one by one."""
    return [pipeline.caption(path, rules=BRIEF) for path in PHOTOS]


def same(one, other):
    assert one.words == other.words
    assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
    assert one.size == other.size
    for a, b in zip(one.trace, other.trace, strict=True):
        assert (a.box is None) == (b.box is None)
        assert a.box is None or a.box == pytest.approx(b.box, abs=1e-4)


def test_the_photos_are_told_apart(said):
    assert len({round(caption.log_prob, 3) for caption in said}) == len(PHOTOS)


def test_a_photo_in_any_form_gets_the_same_caption(pipeline, tmp_path):
    path = tmp_path / "photo.png"
    image = Image.open(PHOTOS[0]).convert("RGB")
    image.save(path)
    forms = [str(path), path, path.read_bytes(), io.BytesIO(path.read_bytes()).getvalue(), image, np.asarray(image)]
    results = [pipeline.caption(form, rules=BRIEF) for form in forms]
    for result in results:
        same(result, results[0])
    assert [result.path for result in results] == [str(path), str(path), "", "", "", ""]


def test_many_photos_get_the_captions_each_gets_alone_in_order(pipeline, said):
    for many in (list(PHOTOS), tuple(PHOTOS)):
        results = pipeline.caption(many, rules=BRIEF)
        assert isinstance(results, list)
        for one, other in zip(results, said, strict=True):
            same(one, other)
    assert pipeline.caption([]) == []


def test_a_list_longer_than_a_batch_is_captioned_whole(pipeline, said):
    results = pipeline.caption([PHOTOS[i % 5] for i in range(11)], rules=BRIEF)
    assert [result.text for result in results] == [said[i % 5].text for i in range(11)]


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_a_folder_is_captioned_in_order_whatever_the_batch(pipeline, said, batch):
    results = list(pipeline.caption_many(PHOTOS, batch=batch, rules=BRIEF))
    assert [result.path for result in results] == [str(path) for path in PHOTOS]
    for one, other in zip(results, said, strict=True):
        same(one, other)


def test_bad_files_are_told_and_stop_nothing(pipeline, said, tmp_path):
    (tmp_path / "text.jpg").write_text("no picture")
    mixed = [PHOTOS[0], tmp_path / "text.jpg", PHOTOS[1], tmp_path / "nowhere.jpg", PHOTOS[2]]
    bad = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = list(pipeline.caption_many(mixed, bad=bad.append, rules=BRIEF))
    assert [result.text for result in results] == [caption.text for caption in said[:3]]
    assert [Path(error.where).name for error in bad] == ["text.jpg", "nowhere.jpg"]
    with pytest.warns(UserWarning, match="2 files were left out"):
        assert len(list(pipeline.caption_many(mixed, rules=BRIEF))) == 3


def test_one_bad_photo_by_itself_is_an_error(pipeline):
    with pytest.raises(ImageError):
        pipeline.caption(b"no picture")


def test_captions_come_while_later_photos_are_not_yet_read(pipeline, tmp_path):
    paths = [draw_photo(tmp_path / f"{i}.png", (SIZE, SIZE)) for i in range(72)]
    last = tmp_path / "last.png"  # further ahead than photos are read
    coming = pipeline.caption_many([*paths, last], beam=1, rules=Rules(max_words=1))
    first = next(coming)
    draw_photo(last)
    assert [first.path, *(result.path for result in coming)] == [str(path) for path in [*paths, last]]


def test_progress_wraps_the_paths(pipeline):
    seen = []

    def progress(paths):
        for path in paths:
            seen.append(path)
            yield path

    list(pipeline.caption_many(PHOTOS[:2], rules=BRIEF, progress=progress))
    assert seen == PHOTOS[:2]


@pytest.mark.parametrize(("beam", "strategy"), [(1, Greedy()), (3, Beam(3)), (5, Beam(5))])
@pytest.mark.parametrize("rounded", [True, False])
def test_the_caption_is_what_the_models_say_unfolded_and_without_the_api(bundle, beam, strategy, rounded, monkeypatch):
    if not rounded:
        monkeypatch.setattr("sightline.vision.fold_batch_norm.int8_available", lambda: False)
    eyes = fold_int8(bundle.vision) if rounded else bundle.vision
    pixels, _ = read_pixels(PHOTOS[0], SIZE)
    with torch.no_grad():
        scenes = eyes.scenes(torch.from_numpy(pixels).permute(2, 0, 1)[None], ("x",))
        (best, *_), *_ = captions(bundle.captioner.model, scenes, bundle.captioner.vocabulary, strategy, SOME)
    result = Pipeline(bundle).caption(PHOTOS[0], beam=beam, rules=SOME)
    assert result.words == best.words
    assert result.log_prob == pytest.approx(best.log_prob, rel=1e-2)  # products are of 8 bits


def test_among_the_captions_of_a_beam_the_one_that_fits_the_photo_is_chosen(bundle):
    says, finds, changed = bundle.captioner, bundle.matcher, 0
    for path, weight in itertools.product(PHOTOS, (200.0, 5000.0)):
        pipeline = Pipeline(replace(bundle, fit=weight))
        scenes = pipeline.scenes([pipeline.read(path)])
        with torch.no_grad():
            (beam,) = captions(pipeline.captioner, scenes, says.vocabulary, Beam(5, keep=5), CAREFUL, trace=False)
            photo = finds.model.embed_images(scenes)["vector"][0]
            fits = []
            for one in beam:
                sentence = finds.model.embed_texts(TextBatch.collate([one.words], finds.vocabulary))["vector"][0]
                fits.append(one.log_prob + weight * float(photo @ sentence))
        best = beam[int(np.argmax(fits))]
        said = pipeline.caption(path)
        assert (said.words, len(said.trace)) == (best.words, len(best.words))
        assert said.log_prob == pytest.approx(best.log_prob, abs=1e-3)
        assert pipeline.caption(path, beam=1).words == Pipeline(bundle).caption(path, beam=1).words
        changed += best.words != beam[0].words
    assert changed


def test_alternatives_are_the_captions_of_a_beam_the_most_probable_first(pipeline, bundle):
    scenes = pipeline.scenes([pipeline.read(PHOTOS[0])])
    beam = captions(pipeline.captioner, scenes, bundle.captioner.vocabulary, Beam(6, keep=6), CAREFUL)[0]
    others = pipeline.alternatives(PHOTOS[0], 6)
    assert [(one.words, one.log_prob) for one in others] == [(one.words, one.log_prob) for one in beam]
    assert [one.log_prob for one in others] == sorted((one.log_prob for one in others), reverse=True)
    assert len({one.words for one in others}) == len(others) == 6
    two = pipeline.alternatives(PHOTOS[0], 2, rules=BRIEF)
    assert len(two) == 2
    assert all("dog" in one.words and len(one) <= 6 for one in two)


def test_nouns_point_at_boxes_of_the_scene_and_no_other_words_do(pipeline, bundle, said):
    pointing, eyes = 0, fold_int8(bundle.vision)
    for path, caption in zip(PHOTOS, said, strict=True):
        pixels, _ = read_pixels(path, SIZE)
        with torch.no_grad():
            boxes = eyes.scenes(torch.from_numpy(pixels).permute(2, 0, 1)[None], ("x",)).boxes[0].numpy()
        nouns = Tagger.default().nouns(caption.words)
        for word, noun, trace in zip(caption.words, nouns, caption.trace, strict=True):
            assert trace.box is None or (noun and word not in PLACES)
            if trace.box is not None:
                pointing += 1
                assert np.abs(boxes - np.array(trace.box)).max(1).min() < 1e-3
                assert bundle.pointing.least <= trace.score <= 1
    assert pointing >= len(PHOTOS)


def test_the_json_form_is_that_of_the_documentation(pipeline):
    told = pipeline.caption(PHOTOS[1]).to_json()
    assert list(told) == ["path", "caption", "log_prob", "confidence", "low_confidence", "words", "concepts", "size"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["caption"] == " ".join(word["word"] for word in told["words"])
    assert told["size"] == list(Image.open(PHOTOS[1]).size)
    assert told["concepts"]
    for thing in (*told["words"], *told["concepts"]):
        assert set(thing) <= {"word", "name", "box", "boxes", "score"}
        if thing["box"] is not None:
            x1, y1, x2, y2 = thing["box"]
            assert 0 <= x1 <= x2 <= told["size"][0]
            assert 0 <= y1 <= y2 <= told["size"][1]
            assert 0 <= thing["score"] <= 1


def test_boxes_are_in_pixels_of_the_upright_photo(pipeline, tmp_path):
    upright = Image.open(PHOTOS[4]).convert("RGB").resize((2 * SIZE, SIZE))  # squashed along one side alone
    lying, turn = upright.transpose(Image.Transpose.ROTATE_90), Image.Exif()
    turn[0x0112] = 6  # shown turned by 270 degrees
    lying.save(tmp_path / "lying.png", exif=turn)
    result = pipeline.caption(tmp_path / "lying.png", rules=BRIEF)
    assert result.size == (2 * SIZE, SIZE)
    same(result, pipeline.caption(upright, rules=BRIEF))


def test_confidence_is_the_calibration_of_the_bundle(bundle):
    sure = Pipeline(replace(bundle, calibration=Calibration((0.0, 0.0, 0.0), 4.0, low=0.5))).caption(PHOTOS[0])
    assert sure.confidence == pytest.approx(1 / (1 + np.exp(-4)))
    assert not sure.low_confidence
    doubtful = Pipeline(replace(bundle, calibration=Calibration((0.0, 0.0, 0.0), -4.0, low=0.5))).caption(PHOTOS[0])
    assert doubtful.low_confidence


@pytest.mark.parametrize("options", [{"matcher": False}, {"other_words": True}], ids=["no matcher", "other words"])
def test_a_matcher_may_be_missing_or_know_other_words(options):
    result = Pipeline(tiny_bundle(**options)).caption(PHOTOS[0], rules=BRIEF)
    assert result.trace[result.words.index("dog")].box is not None


def test_the_matcher_has_a_say_in_where_words_point(bundle, said):
    alone = Pipeline(replace(bundle, matcher=None))
    scores = [[t.score for t in alone.caption(path, rules=BRIEF).trace] for path in PHOTOS]
    assert scores != [[t.score for t in caption.trace] for caption in said]


def test_a_vision_model_of_grid_cells_and_a_global_matcher_serve_too(bundle):
    torch.manual_seed(0)
    words = bundle.captioner.vocabulary
    says = SimTransConfig(region_width=1280, hidden_size=16, heads=2, layers=1, ffn_size=16).build(len(words)).eval()
    finds = VSEPPConfig(region_width=1280, vector_width=1280, size=6, word_size=5).build(len(words)).eval()
    vision = GridEncoder("lite0", SIZE).eval()
    whole = Bundle(vision, Reader(says, words, "scan"), Reader(finds, words, "scan"))
    result = Pipeline(whole).caption(PHOTOS[0])
    assert result.words
    assert result.concepts == ()


def test_load_reads_a_file_and_sets_the_threads(bundle, tmp_path):
    save_bundle(tmp_path / "x.safetensors", bundle, "float32")
    before = torch.get_num_threads()
    try:
        loaded = sightline.load(tmp_path / "x.safetensors", device="cpu", threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert isinstance(loaded, sightline.Pipeline)
    same(loaded.caption(PHOTOS[0]), Pipeline(bundle).caption(PHOTOS[0]))
    assert set(loaded.caption(PHOTOS[0]).words) <= set(WORDS)


def test_an_int8_bundle_sees_nearly_the_same(bundle, tmp_path, monkeypatch):
    # a random network makes much of small changes, and those of 8-bit blocks are not meant here
    monkeypatch.setattr("sightline.vision.fold_batch_norm.int8_available", lambda: False)
    save_bundle(tmp_path / "x.safetensors", bundle, "int8")
    sights = Pipeline(bundle), load(tmp_path / "x.safetensors", "cpu")
    for path in PHOTOS[:2]:
        exact, near = (pipeline.caption(path, beam=1, rules=Rules(max_words=1)) for pipeline in sights)
        assert near.log_prob == pytest.approx(exact.log_prob, abs=0.2)


@pytest.mark.parametrize(
    "call",
    [
        lambda pipeline: load(threads=0),
        lambda pipeline: load(device="abacus"),
        lambda pipeline: list(pipeline.caption_many(PHOTOS, batch=0)),
        lambda pipeline: pipeline.caption(PHOTOS[0], beam=0),
    ],
    ids=["threads", "device", "batch", "beam"],
)
def test_a_wrong_number_or_name_is_told(pipeline, call):
    with pytest.raises(ConfigError):
        call(pipeline)


def test_a_look_has_the_vector_that_finds_the_photo(bundle):
    pipeline = Pipeline(bundle)
    looks = pipeline.embed_photos(map(pipeline.read, PHOTOS))
    assert [look.path for look in looks] == [str(path) for path in PHOTOS]
    vectors = np.stack([look.vector for look in looks])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors, pipeline.vectors(PHOTOS), atol=1e-5)
    assert [str(look.caption) for look in looks] == [str(caption) for caption in pipeline.caption_many(PHOTOS)]
    bare = pipeline.embed_photos([pipeline.read(PHOTOS[0])], captions=False)[0]
    assert bare.caption is None
    assert bare.size == looks[0].size


def test_sentences_have_vectors_in_the_same_space(bundle):
    pipeline = Pipeline(bundle)
    vectors = pipeline.text_vectors(["a dog on the table", "A dog, on the table!", "two cats"])
    assert vectors.shape == (3, pipeline.vectors(PHOTOS[:1]).shape[1])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert not np.allclose(vectors[0], vectors[2], atol=1e-3)


def test_a_model_that_cannot_match_whole_photos_has_no_vectors():
    with pytest.raises(ConfigError, match="no matcher of whole photos"):
        Pipeline(tiny_bundle(matcher=False)).text_vectors(["a dog"])


def test_a_length_is_the_rules_that_the_command_line_makes_of_it(pipeline):
    for length in ("short", "long", 6):
        same(pipeline.caption(PHOTOS[0], length=length), pipeline.caption(PHOTOS[0], rules=rules_of(str(length))))
    assert len(pipeline.caption(PHOTOS[0], length="long")) >= 13
    assert len(next(pipeline.caption_many(PHOTOS[:1], length=6))) <= 6
    assert len(pipeline.distinct(PHOTOS[:1], length=6)[0]) <= 6


@pytest.mark.parametrize("length", ["tiny", 4, 41])
def test_a_length_that_is_none_is_refused(pipeline, length):
    with pytest.raises(ConfigError, match="`length` is"):
        pipeline.caption(PHOTOS[0], length=length)


def test_a_length_beside_rules_is_refused(pipeline):
    with pytest.raises(ConfigError, match="both say how long"):
        pipeline.caption(PHOTOS[0], length="short", rules=BRIEF)


def test_called_it_answers_as_an_image_to_text_pipeline_of_transformers_does(pipeline):
    caption = pipeline.caption(PHOTOS[0], length=6).text
    assert pipeline(str(PHOTOS[0]), length=6) == [{"generated_text": caption}]
    with Image.open(PHOTOS[0]) as image:
        assert len(pipeline(image, length=6)) == 1
    assert pipeline([PHOTOS[0], PHOTOS[0]], length=6) == [[{"generated_text": caption}]] * 2
    assert pipeline([]) == []


def test_a_model_that_says_nothing_warns(bundle):
    """A few steps of training teach END before any word: an empty caption is no answer, whatever its probability."""
    certain = Pipeline(replace(bundle, calibration=Calibration(low=0.0)))
    said = certain.caption(PHOTOS[0], rules=Rules(must_not=tuple(WORDS)))
    assert said.words == ()
    assert said.low_confidence
    assert said.to_json()["warning"] == "the model says nothing about it; train it for longer"
    said = certain.caption(PHOTOS[0], rules=SOME)
    assert not said.warning
    assert not said.low_confidence
