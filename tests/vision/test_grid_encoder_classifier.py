"""EfficientNet-Lite as downloaded, from pixels to the classes of ImageNet."""

from pathlib import Path

import pytest
import torch

from sightline.errors import MissingExtraError
from sightline.vision.concept_names import imagenet_classes
from sightline.vision.concept_tokens import hedged_probabilities, imagenet_forest
from sightline.vision.grid_encoder import ImageNetClassifier, imagenet_weights
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
