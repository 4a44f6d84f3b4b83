"""Photos become scenes: ours by the vision model and its box rule, or those of any encoder."""

from __future__ import annotations

import os
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from bundle_samples import awaken
from sightline import SceneBatch
from sightline.batch import cell_boxes
from sightline.errors import ConfigError, DataError
from sightline.jobs.extract_job import LEDGER, SceneMaker, extract
from sightline.photo import Photo
from sightline.scene import Concept
from sightline.vision.detector import Detector, DetectorConfig
from sightline.vision.encoder import BoxRule, InferenceEncoder
from sightline.vision.feature_store import FeatureStore
from sightline.vision.grid_encoder import GridEncoder
from sightline.vision.images import read_pixels

torch.set_num_threads(1)
DOCS = Path(__file__).parents[2] / "docs" / "scenes.md"
NAMES = ("dog", "cat", "ball")


@pytest.fixture(scope="module")
def detector() -> Detector:
    torch.manual_seed(0)
    config = DetectorConfig(variant="lite0", size=64, channels=8, region_width=6, names=NAMES, boxes=5)
    built = config.build()
    awaken(built)
    return built.eval()


@pytest.fixture(scope="module")
def grid() -> GridEncoder:
    torch.manual_seed(0)
    return GridEncoder("lite0", size=64).eval()


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, size in (("a.png", (40, 30)), ("b.jpg", (300, 200)), ("more/c.jpg", (20, 50))):
        Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("not a photo")
    return folder


def pixels_of(path: Path, size: int = 64) -> torch.Tensor:
    return torch.from_numpy(read_pixels(path, size)[0]).permute(2, 0, 1)[None]


def test_a_folder_becomes_a_store_of_all_that_the_detector_sees(detector, photos, tmp_path):
    report = extract(photos, tmp_path / "scenes", detector, batch=2)
    assert (report.made, report.bad) == (3, [])
    store = FeatureStore(tmp_path / "scenes")
    assert store.ids() == ("a.png", "b.jpg", "more/c.jpg")
    assert store.fingerprint == detector.fingerprint()
    for scene in store:
        with torch.inference_mode():
            seen = detector.scenes(pixels_of(photos / scene.id), [scene.id])
            concepts = detector.concepts(seen)[0]
        with Image.open(photos / scene.id) as image:
            assert scene.size == image.size
        assert scene.regions.dtype == scene.grid.dtype == scene.vector.dtype == np.float16
        assert scene.boxes.dtype == scene.scores.dtype == np.float32
        assert scene.grid_shape == (2, 2)
        np.testing.assert_allclose(scene.scores, seen.scores[0], atol=1e-4)
        np.testing.assert_allclose(scene.boxes, seen.boxes[0], atol=1e-4)
        for name in ("regions", "grid", "vector"):
            np.testing.assert_allclose(getattr(scene, name), getattr(seen, name)[0], atol=4e-3, rtol=1e-3)
        assert [c.name for c in scene.concepts] == [c.name for c in concepts]
        assert scene.concepts
        for mine, theirs in zip(scene.concepts, concepts, strict=True):
            assert mine.score == pytest.approx(theirs.score, abs=1e-4)
            assert mine.box == pytest.approx(theirs.box, abs=1e-4)


def test_cells_of_a_grid_encoder_are_regions(grid, photos, tmp_path):
    extract(photos, tmp_path / "scenes", grid)
    scene = FeatureStore(tmp_path / "scenes")["b.jpg"]
    assert np.array_equal(scene.boxes, cell_boxes(torch.tensor([[2, 2]]), 4)[0].numpy())
    assert np.array_equal(scene.regions, scene.grid)
    assert scene.concepts == ()
    with torch.inference_mode():
        np.testing.assert_allclose(scene.grid, grid(pixels_of(photos / "b.jpg"))[0], atol=4e-3, rtol=1e-3)


def test_batch_size_does_not_change_scenes(detector, photos, tmp_path):
    for batch in (1, 3):
        extract(photos, tmp_path / str(batch), detector, batch=batch)
    one, three = FeatureStore(tmp_path / "1"), FeatureStore(tmp_path / "3")
    for id in one.ids():
        np.testing.assert_allclose(one[id].boxes, three[id].boxes, atol=1e-4)
        np.testing.assert_allclose(one[id].regions, three[id].regions, atol=2e-3, rtol=1e-3)


def test_a_second_run_goes_on_and_sees_what_changed(detector, photos, tmp_path):
    store = tmp_path / "scenes"
    extract(photos, store, detector)
    before = FeatureStore(store)["a.png"].vector.copy()
    Image.new("RGB", (9, 9)).save(photos / "d.png")
    Image.new("RGB", (44, 44), "red").save(photos / "a.png")
    report = extract(photos, store, detector)
    assert (report.made, report.kept) == (2, 2)
    after = FeatureStore(store)
    assert after["a.png"].size == (44, 44)
    assert not np.array_equal(after["a.png"].vector, before)
    assert after.verify() == {}
    assert (store / LEDGER).is_file()


def test_a_photo_of_another_folder_never_takes_the_place_of_one_of_the_same_path(detector, photos, tmp_path):
    store, other = tmp_path / "scenes", tmp_path / "other"
    extract(photos, store, detector)
    before = FeatureStore(store)["a.png"].vector.copy()
    (other / "more").mkdir(parents=True)
    Image.new("RGB", (44, 44), "red").save(other / "a.png")
    with pytest.raises(DataError, match=re.escape(f"that of {photos / 'a.png'}, and {other / 'a.png'} would replace")):
        extract(other, store, detector)
    assert np.array_equal(FeatureStore(store)["a.png"].vector, before)
    (other / "a.png").rename(other / "more" / "a.png")  # of another path, it goes in beside the others
    assert extract(other, store, detector).made == 1
    Image.new("RGB", (55, 55), "blue").save(photos / "a.png")
    assert extract(photos, store, detector).made == 1
    photos.rename(tmp_path / "moved")
    Image.new("RGB", (66, 66), "green").save(tmp_path / "moved" / "a.png")
    report = extract(tmp_path / "moved", store, detector)
    assert (report.made, report.kept) == (1, 2)


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_a_name_that_is_no_text_is_told_once(detector, photos, tmp_path):
    (photos / os.fsdecode(b"caf\xe9.jpg")).touch()
    reports = [extract(photos, tmp_path / "scenes", detector) for _ in range(2)]
    assert [len(report.bad) for report in reports] == [1, 1]
    assert [len(report.news) for report in reports] == [1, 0]


def test_a_repaired_store_gets_its_lost_scenes_back(detector, photos, tmp_path):
    store = tmp_path / "scenes"
    extract(photos, store, detector)
    data = store / "data-00000.bin"
    raw = bytearray(data.read_bytes())
    raw[-1] ^= 255
    raw[-200] ^= 255
    data.write_bytes(raw)
    assert FeatureStore.repair(store).records == 1
    assert extract(photos, store, detector).made == 1
    assert len(FeatureStore(store)) == 3


def test_bad_files_and_folders_of_nothing_else(detector, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "x.jpg").touch()
    report = extract(tmp_path / "photos", tmp_path / "scenes", detector)
    assert [error.what for error in report.news] == ["the file is empty"]
    assert len(FeatureStore(tmp_path / "scenes")) == 0


def test_another_rule_for_boxes_is_another_store(detector, photos, tmp_path):
    extract(photos, tmp_path / "scenes", detector)
    with pytest.raises(DataError, match="one store holds the scenes of one vision model and box rule"):
        extract(photos, tmp_path / "scenes", InferenceEncoder(detector, BoxRule(3, 3)))
    marks = [
        InferenceEncoder(detector, rule).fingerprint()
        for rule in (None, BoxRule(3, 3), BoxRule(3, 5), BoxRule(2, 5), BoxRule(3, 5, score=0.4))
    ]
    assert len(set(marks)) == 5
    assert InferenceEncoder(detector, BoxRule(5, 5)).fingerprint() == marks[0] == detector.fingerprint()


@pytest.mark.parametrize("count", [1, 7])
def test_a_number_of_boxes_gives_the_best_so_many(detector, photos, tmp_path, count):
    extract(photos, tmp_path / "some", InferenceEncoder(detector, BoxRule(count, count)))
    extract(photos, tmp_path / "all", detector)
    for few, usual in zip(FeatureStore(tmp_path / "some"), FeatureStore(tmp_path / "all"), strict=True):
        assert len(few) == count
        both = min(count, 5)
        assert np.array_equal(few.boxes[:both], usual.boxes[:both])
    assert detector.config.boxes == 5


def test_many_boxes_look_at_as_many_cells_as_they_need(detector):
    assert InferenceEncoder(detector, BoxRule(36, 36)).vision.config.candidates == 300
    assert InferenceEncoder(detector, BoxRule(200, 200)).vision.config.candidates == 600


def test_a_range_of_boxes_follows_the_scores(detector, photos, tmp_path):
    extract(photos, tmp_path / "all", InferenceEncoder(detector, BoxRule(9, 9)))
    everything = FeatureStore(tmp_path / "all")
    score = float(np.median(np.concatenate([scene.scores for scene in everything])))
    extract(photos, tmp_path / "some", InferenceEncoder(detector, BoxRule(2, 9, score)))
    counts = set()
    for scene in FeatureStore(tmp_path / "some"):
        full = everything[scene.id]
        expected = max(2, int((full.scores >= score).sum()))
        counts.add(expected)
        assert len(scene) == expected
        assert np.array_equal(scene.regions, full.regions[:expected])
        assert np.array_equal(scene.boxes, full.boxes[:expected])
        boxes = {tuple(map(float, box)) for box in scene.boxes}
        assert all(concept.box in boxes for concept in scene.concepts)
    assert len(counts) > 1  # or the test shows nothing


@pytest.mark.parametrize("text", ["", "many", "0", "10..", "..10", "100..10", "-3", "1e9", "3.5", "٣"])
def test_a_rule_that_makes_no_sense_is_refused(text):
    with pytest.raises(ConfigError, match=r"36.*10\.\.100"):
        BoxRule.parse(text)


def test_a_refused_number_of_boxes_is_told_with_the_limits():
    for text, told in (("0", "0 boxes were asked for. To fix: give 1 or more"), ("99999", "give a number up to 9999 ")):
        with pytest.raises(ConfigError, match=re.escape(told)):
            BoxRule.parse(text)


def test_rules_are_written_as_people_write_them():
    assert BoxRule.parse("36") == BoxRule(36, 36)
    assert BoxRule.parse(" 10..100 ") == BoxRule(10, 100)
    with pytest.raises(ConfigError, match="score"):
        BoxRule(1, 2, score=2.0)


def test_cells_cannot_be_chosen(grid):
    with pytest.raises(ConfigError, match="cells of its grid"):
        InferenceEncoder(grid, BoxRule(3, 3))


def test_work_crosses_to_another_process_by_pickle(detector, photos):
    maker = SceneMaker(InferenceEncoder(detector))
    loaded = [Photo(p.name, p, *read_pixels(p, 64)) for p in sorted(photos.glob("*.*g"))]
    first = maker(loaded)
    assert [scene.id for scene in first] == ["a.png", "b.jpg"]
    assert pickle.loads(pickle.dumps(maker))(pickle.loads(pickle.dumps(loaded))) == first


class Colours:
    """An encoder of no weights: regions of different number, one vector, and names."""

    size = 8
    scale = 1.0

    def fingerprint(self) -> str:
        return f"colours {self.scale}"

    def scenes(self, pixels, ids):
        assert pixels.dtype == torch.uint8
        assert pixels.shape[1:] == (3, 8, 8)
        assert not torch.is_grad_enabled()
        vector = pixels.float().mean((2, 3)) * self.scale
        mask = torch.tensor([[True, i % 2 == 0] for i in range(len(ids))])
        return SceneBatch(tuple(ids), regions=vector[:, None].expand(-1, 2, -1), region_mask=mask, vector=vector)


def test_any_encoder_can_make_scenes(photos, tmp_path):
    extract(photos, tmp_path / "scenes", Colours(), batch=2)
    store = FeatureStore(tmp_path / "scenes")
    assert [len(scene) for scene in store] == [2, 1, 2]
    for scene in store:
        np.testing.assert_allclose(scene.vector, pixels_of(photos / scene.id, 8)[0].float().mean((1, 2)), rtol=1e-3)
    assert store["a.png"].parts() == ("regions", "vector", "size")


def test_an_encoder_that_names_things_is_asked(photos, tmp_path):
    class Naming(Colours):
        def concepts(self, scenes):
            return [(Concept(id, 0.5),) for id in scenes.ids]

    extract(photos, tmp_path / "scenes", Naming())
    assert FeatureStore(tmp_path / "scenes")["b.jpg"].concepts == (Concept("b.jpg", 0.5),)


def test_features_beyond_float16_are_told_and_float32_holds_them(photos, tmp_path):
    encoder = Colours()
    encoder.scale = 1e4
    with pytest.raises(DataError, match=r"float16 ends at 65504.*--dtype float32"):
        extract(photos, tmp_path / "scenes", encoder)
    extract(photos, tmp_path / "wide", encoder, dtype="float32")
    wide = FeatureStore(tmp_path / "wide")
    assert wide["a.png"].vector.dtype == np.float32
    assert wide["a.png"].vector.max() > 65504
    extract(photos, tmp_path / "wide", encoder)  # goes on in float32 without being told


class StandIn(nn.Module):
    """What `ViTModel` gives for 224 pixels: 1 + 14 · 14 tokens, of the mean colours of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(patch_size=16)
        self.widen = nn.Linear(3, 768)

    @classmethod
    def from_pretrained(cls, name: str, add_pooling_layer: bool) -> StandIn:
        assert (name, add_pooling_layer) == ("google/vit-base-patch16-224-in21k", False)
        return cls()

    def forward(self, pixel_values: torch.Tensor) -> SimpleNamespace:
        assert pixel_values.abs().max() <= 1
        assert not self.training
        patches = nn.functional.avg_pool2d(pixel_values, 16).flatten(2).mT  # (B, 196, 3)
        return SimpleNamespace(last_hidden_state=self.widen(torch.cat([patches.mean(1, keepdim=True), patches], 1)))


def test_the_example_of_the_docs_extracts_with_a_vision_transformer(photos, tmp_path, monkeypatch, capsys):
    """With a stand-in for the model itself, which a package of its own holds."""
    (code,) = re.findall(r'```python title="vit_scenes.py"\n(.*?)```', DOCS.read_text(), re.S)
    transformers = ModuleType("transformers")
    transformers.ViTModel = StandIn
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "vit_scenes.py", "exec"), {"__name__": "__main__"})
    assert "made=3" in capsys.readouterr().out
    scene = FeatureStore(tmp_path / "scenes")["b.jpg"]
    assert scene.grid.shape == (196, 768)
    assert scene.grid_shape == (14, 14)
    assert scene.vector.shape == (768,)
    assert scene.fingerprint == "google/vit-base-patch16-224-in21k patch tokens"


def test_a_model_in_training_is_folded_as_it_evaluates_and_goes_on_training(detector):
    copied = replace(detector.config).build()
    copied.load_state_dict(detector.state_dict())
    pixels = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    with torch.inference_mode():
        seen = InferenceEncoder(copied.train()).scenes(pixels, ["a"])
        expected = detector.scenes(pixels, ["a"])
    torch.testing.assert_close(seen.regions, expected.regions, atol=1e-3, rtol=1e-3)
    assert copied.training


def test_pooled_grids_are_means_of_squares_of_cells(photos, tmp_path, detector):
    whole, pooled = InferenceEncoder(detector), InferenceEncoder(detector, pool=2)
    assert whole.fingerprint() == detector.fingerprint() != pooled.fingerprint()
    extract(photos, tmp_path / "whole", whole)
    extract(photos, tmp_path / "pooled", pooled)
    scene = next(iter(FeatureStore(tmp_path / "whole")))
    small = FeatureStore(tmp_path / "pooled")[scene.id]
    height, width = scene.grid_shape
    assert small.grid_shape == ((height + 1) // 2, (width + 1) // 2)
    cells = np.asarray(scene.grid, np.float32).reshape(height, width, -1)
    means = [
        cells[top : top + 2, left : left + 2].mean((0, 1)) for top in range(0, height, 2) for left in range(0, width, 2)
    ]
    np.testing.assert_allclose(np.asarray(small.grid, np.float32), np.stack(means), atol=2e-3)
    np.testing.assert_allclose(np.asarray(small.regions), np.asarray(scene.regions))


def test_a_pool_of_nothing_is_refused(detector):
    with pytest.raises(ConfigError, match="pool"):
        InferenceEncoder(detector, pool=0)
