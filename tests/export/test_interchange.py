"""Results as supervision, pandas, COCO's tools and Hugging Face's datasets hold them; the real libraries read them."""

import json
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
from PIL import Image

from bundle_samples import EXAMPLES
from sightline.caption import PhotoCaption, WordTrace
from sightline.data import coco
from sightline.data.convert import any_captions
from sightline.errors import ConfigError, DataError, DuplicateRecordError, MissingRecordError
from sightline.export.interchange import box_frame, caption_frame, coco_results, to_detections, write_image_folder
from sightline.grounding.evidence import Grounding
from sightline.scene import Concept

LEFT, RIGHT = (0.1, 0.2, 0.5, 1.0), (0.6, 0.2, 0.9, 0.5)
TRACE = (WordTrace(), WordTrace(box=LEFT, score=0.5, others=(RIGHT,)), WordTrace(), WordTrace(box=RIGHT, score=0.25))
WORDS = ("two", "dogs", "and", "balls")
THINGS = (Concept("dog", 0.9, LEFT), Concept("grass", 0.4))


def caption_at(path="photos/dogs.jpg"):
    return PhotoCaption(WORDS, -1.5, TRACE, path, (200, 100), 0.75, False, THINGS)


@pytest.fixture
def supervision():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that OpenCV is not installed, which boxes do not need
        return pytest.importorskip("supervision")


def test_boxes_are_detections_in_pixels_with_names_and_scores(supervision):
    boxes = to_detections(caption_at())
    assert isinstance(boxes, supervision.Detections)
    np.testing.assert_allclose(boxes.xyxy, [[20, 20, 100, 100], [120, 20, 180, 50], [120, 20, 180, 50]], rtol=1e-6)
    assert boxes["class_name"].tolist() == ["dogs", "dogs", "balls"]
    assert boxes.class_id.tolist() == [0, 0, 1]
    assert boxes.confidence.tolist() == [0.5, 0.5, 0.25]
    assert len(boxes[boxes.confidence > 0.3]) == 2
    assert boxes.with_nms(threshold=0.5, class_agnostic=True).confidence.tolist() == [0.5, 0.5]  # ball is on a dog


def test_supervision_draws_the_boxes(supervision):
    image = Image.new("RGB", (200, 100))
    drawn = np.asarray(supervision.BoxAnnotator(thickness=1).annotate(image.copy(), to_detections(caption_at())))
    assert drawn[60, 20].any()  # the left side of the first box
    assert not drawn[60, 10].any()


def test_what_was_seen_and_sentences_of_your_own_are_detections_too(supervision):
    seen = to_detections(caption_at(), concepts=True)
    assert seen["class_name"].tolist() == ["dog"]  # grass has no box
    own = Grounding(WORDS, 0.0, TRACE, "a.jpg", "Two dogs and balls.", (200, 100))
    np.testing.assert_array_equal(to_detections(own).xyxy, to_detections(caption_at()).xyxy)
    with pytest.raises(ConfigError, match="only captions have concepts"):
        to_detections(own, concepts=True)
    assert len(to_detections(PhotoCaption(("a", "dog"), size=(200, 100)))) == 0


def test_captions_are_a_table_with_a_row_a_photo():
    frame = caption_frame([caption_at(), caption_at("photos/b.jpg")])
    assert frame["path"].tolist() == ["photos/dogs.jpg", "photos/b.jpg"]
    told = caption_at().to_json()
    shared = [name for name in frame.columns if name in told]
    assert shared == ["path", "caption", "confidence", "low_confidence", "log_prob"]
    assert frame.loc[0, shared].to_dict() == {name: told[name] for name in shared}
    assert frame.loc[0, ["width", "height"]].tolist() == [200, 100]
    assert frame.loc[0, "objects"] == ["dog", "grass"]
    assert list(caption_frame([]).columns) == list(frame.columns)


def test_boxes_are_a_table_with_a_row_a_box():
    frame = box_frame([caption_at(), caption_at("photos/b.jpg")])
    assert frame["word"].tolist() == ["dogs", "dogs", "balls"] * 2
    assert frame["position"].tolist() == [1, 1, 3] * 2
    assert frame.loc[1, ["x1", "y1", "x2", "y2"]].tolist() == pytest.approx([120, 20, 180, 50])
    joined = caption_frame([caption_at(), caption_at("photos/b.jpg")]).merge(frame, on="path")
    assert len(joined) == 6


def test_results_of_coco_read_back_by_the_numbers_of_their_photos(tmp_path):
    captions = [
        caption_at("val/COCO_val2014_000000391895.jpg"),
        caption_at("000000030034.jpg"),
        caption_at("a/cat.png"),
    ]
    results = coco_results(captions)
    assert results[0] == {"image_id": 391895, "caption": "two dogs and balls"}
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert [photo.id for photo in coco.read_results(tmp_path / "results.json")] == ["391895", "30034", "cat"]
    with pytest.raises(DuplicateRecordError, match="two captions are of image cat"):
        coco_results([caption_at("a/cat.png"), caption_at("b/cat.jpg")])
    with pytest.raises(DataError, match="came as pixels"):
        coco_results([caption_at("")])


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos" / "more").mkdir(parents=True)
    shutil.copy(EXAMPLES / "cat.jpg", tmp_path / "photos")
    shutil.copy(EXAMPLES / "coffee.jpg", tmp_path / "photos" / "more")
    return tmp_path / "photos"


def test_an_image_folder_is_loaded_by_datasets_and_read_here(photos, tmp_path, monkeypatch):
    written = write_image_folder(
        photos, [caption_at(str(photos / "cat.jpg")), caption_at(str(photos / "more/coffee.jpg"))]
    )
    assert {photo.id for photo in any_captions(written)} == {"cat.jpg", "more/coffee.jpg"}
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset(
        "imagefolder", data_dir=str(photos), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded["text"][:] == ["two dogs and balls"] * 2
    with Image.open(photos / "cat.jpg") as cat:
        assert loaded[0]["image"].size == cat.size
    with pytest.raises(MissingRecordError, match="copy the photos there"):
        write_image_folder(photos / "more", [caption_at(str(photos / "cat.jpg"))])


def test_a_table_that_datasets_wrote_is_read_here(photos):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"file_name": ["cat.jpg", "more/coffee.jpg"], "text": ["a cat", "a cup"]})
    rows.to_csv(photos / "metadata.csv")
    assert {photo.id: photo.sentences[0].text for photo in any_captions(photos)} == {
        "cat.jpg": "a cat",
        "more/coffee.jpg": "a cup",
    }


def test_no_library_is_imported_before_it_is_asked_for():
    code = (
        "import sys, sightline.pipeline, sightline.export.interchange;"
        "print({'pandas', 'supervision', 'datasets'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(("library", "convert"), [("pandas", caption_frame), ("supervision", to_detections)])
def test_a_library_that_is_not_there_is_named_with_how_to_get_it(library, convert, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=f"pip install {library}"):
        convert([caption_at()] if convert is caption_frame else caption_at())
