"""EfficientNet-Lite as downloaded, from pixels to the classes of ImageNet."""

from pathlib import Path

import pytest
import torch

from sightline.errors import MissingExtraError
from sightline.vision.concept_names import imagenet_classes
from sightline.vision.concept_tokens import DOWNLOADED_TEMPERATURE, hedged_probabilities, imagenet_forest
from sightline.vision.encoder import InferenceEncoder
from sightline.vision.grid_encoder import GridEncoder, ImageNetClassifier, ImageNetEncoder, imagenet_weights
from sightline.vision.images import read_pixels

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def downloaded():
    try:
        imagenet_weights("lite2")
    except MissingExtraError as error:
        pytest.skip(str(error))


def photo(name: str) -> torch.Tensor:
    return torch.from_numpy(read_pixels(EXAMPLES / f"{name}.jpg", 260)[0]).permute(2, 0, 1)[None]


@torch.no_grad()
def test_logits_are_those_of_the_backbone_with_its_classes():
    torch.manual_seed(0)
    model = ImageNetClassifier("lite0").eval()
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    vector = model.backbone.head_map(model.backbone((pixels.float() - 127) / 128)[-1]).mean((2, 3))
    torch.testing.assert_close(model(pixels), model.backbone.classifier(vector))
    assert model.size == 224


@torch.no_grad()
@pytest.mark.usefixtures("downloaded")
@pytest.mark.parametrize(
    ("name", "group", "told"),
    [("cat", range(281, 286), "cat"), ("coffee", [967], "espresso"), ("photographer", [872], "tripod")],
)
def test_the_table_has_the_order_of_the_downloaded_weights(name, group, told):
    logits = ImageNetClassifier.from_package()(photo(name))
    assert int(logits.argmax()) in group
    assert imagenet_classes()[int(logits.argmax())].name == told
    assert imagenet_forest().chains[int(hedged_probabilities(logits).argmax())][0] == told


@torch.no_grad()
def test_an_encoder_with_classes_makes_the_same_scenes_and_names_the_whole_photo():
    torch.manual_seed(0)
    encoder, plain = ImageNetEncoder("lite0", 64).eval(), GridEncoder("lite0", 64).eval()
    plain.load_state_dict({k: v for k, v in encoder.state_dict().items() if "classifier" not in k})
    encoder.backbone.classifier.bias[::300] = 20.0  # so that a few names are likely
    pixels = torch.randint(0, 256, (8, 3, 64, 64), dtype=torch.uint8)
    ids = [str(number) for number in range(8)]
    scenes = encoder.scenes(pixels, ids)
    torch.testing.assert_close(scenes.regions, plain.scenes(pixels, ids).regions)
    assert encoder.fingerprint() != plain.fingerprint()  # its scenes have concepts
    logits = encoder.backbone.classify(encoder.backbone.head_map(encoder.backbone((pixels.float() - 127) / 128)[-1]))
    likely = hedged_probabilities(logits, DOWNLOADED_TEMPERATURE)
    names = [chain[0] for chain in imagenet_forest().chains]
    expected = [{names[n]: float(p) for n, p in enumerate(row) if p > 0} for row in likely]
    told = InferenceEncoder(encoder).concepts(scenes)
    assert any(told)
    for ours, theirs in zip(told, expected, strict=True):
        assert {concept.name: concept.score for concept in ours} == pytest.approx(theirs, abs=1e-5)
        assert sorted(concept.score for concept in ours) == [concept.score for concept in reversed(ours)]


@torch.no_grad()
@pytest.mark.usefixtures("downloaded")
def test_the_downloaded_encoder_names_the_example_photos():
    encoder = ImageNetEncoder.imagenet("lite2", 224)
    pixels = torch.from_numpy(read_pixels(EXAMPLES / "cat.jpg", 224)[0]).permute(2, 0, 1)[None]
    (concepts,) = encoder.concepts(encoder.scenes(pixels, ["cat"]))
    assert concepts[0].name == "cat"
    assert concepts[0].score > 0.8
