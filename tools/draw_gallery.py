"""Draw the pictures of docs/pictures.md from the photos in examples/: `python tools/draw_gallery.py [page.html]`.

No trained model is asked: boxes, weights and captions are made up by hand to show the form of each picture.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from sightline.caption import Caption, WordTrace
from sightline.draw.attention_maps import attention_panels, representation_attention
from sightline.draw.canvas import save_png
from sightline.draw.charts import (
    curves,
    curves_svg,
    memory_weights,
    relationship_gate,
    sentinel_panels,
    word_region_matrix,
)
from sightline.draw.photo_boxes import words_on_boxes
from sightline.draw.picture_page import Page
from sightline.draw.retrieval_sheets import (
    FoundCaption,
    FoundPhoto,
    Judgement,
    SelfRetrieval,
    caption_results,
    concept_stages,
    photo_results,
    self_retrieval_sheet,
    side_by_side,
)
from sightline.scene import Array, Concept, Scene

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
ASTRONAUT, CAT, COFFEE, CAMERA, ROCKET = (
    ROOT / "examples" / f"{name}.jpg" for name in "astronaut cat coffee photographer rocket".split()
)

BOXES = {
    "astronaut": {"woman": (0.04, 0.02, 0.75, 0.99), "suit": (0.05, 0.33, 0.72, 0.99), "flag": (0.0, 0.0, 0.21, 0.97)}
    | {"helmet": (0.55, 0.67, 0.99, 0.99), "shuttle": (0.68, 0.0, 0.9, 0.55), "face": (0.32, 0.08, 0.56, 0.36)},
    "coffee": {"cup": (0.29, 0.04, 0.69, 0.77), "saucer": (0.13, 0.17, 0.8, 0.97), "coffee": (0.34, 0.24, 0.61, 0.48)}
    | {"spoon": (0.52, 0.55, 0.68, 0.82), "table": (0.0, 0.0, 1.0, 1.0), "handle": (0.32, 0.56, 0.44, 0.78)},
}


def scene_of(name: str, grid: tuple[int, int] | None = None) -> Scene:
    boxes = np.array(list(BOXES[name].values()), dtype=np.float32)
    cells = None if grid is None else np.zeros((grid[0] * grid[1], 1), dtype=np.float32)
    return Scene(name, boxes=boxes, grid=cells, grid_shape=grid)


def weights(name: str, **heights: float) -> Array:
    """Attention over the boxes of a photo: what is named gets its weight, the others share the rest."""
    names = list(BOXES[name])
    rest = (1 - sum(heights.values())) / max(1, len(names) - len(heights))
    return np.array([heights.get(n, rest) for n in names])


def bump(x: float, y: float, width: float, shape: tuple[int, int] = (7, 7)) -> Array:
    """Attention over a grid: a hill at (x, y), both from 0 to 1."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    hill = np.exp(-((((columns + 0.5) / shape[1] - x) ** 2 + ((rows + 0.5) / shape[0] - y) ** 2) / width**2))
    flat: Array = (hill / hill.sum()).reshape(-1)
    return flat


def boxes_picture() -> Image.Image:
    words = "a woman in an orange space suit holding a helmet in front of a flag".split()
    pointing = {1: "woman", 6: "suit", 9: "helmet", 14: "flag"}
    box = BOXES["astronaut"]
    trace = tuple(WordTrace(box=box[pointing[i]] if i in pointing else None) for i in range(len(words)))
    return words_on_boxes(ASTRONAUT, Caption(tuple(words), trace=trace), width=360)


def regions_picture() -> Image.Image:
    said = {"a": {}, "cup": {"cup": 0.61}, "of": {"coffee": 0.3}, "coffee": {"coffee": 0.72}}
    said |= {"with": {"spoon": 0.35}, "spoon": {"spoon": 0.66, "saucer": 0.12}}
    trace = tuple(WordTrace(regions=weights("coffee", **heights)) for heights in said.values())
    return attention_panels(COFFEE, Caption(tuple(said), trace=trace), scene_of("coffee"), width=560, columns=3)


SEEN = [("a", 0.5, 0.5, 0.9, 0.72), ("cat", 0.45, 0.45, 0.4, 0.14), ("with", 0.5, 0.5, 0.8, 0.81)]
SEEN += [("green", 0.37, 0.36, 0.16, 0.22), ("eyes", 0.52, 0.42, 0.22, 0.19), ("looking", 0.7, 0.42, 0.2, 0.46)]


def sentinel_picture() -> Image.Image:
    trace = tuple(WordTrace(grid=bump(x, y, wide), gates={"sentinel": beta}) for _, x, y, wide, beta in SEEN)
    caption = Caption(tuple(word for word, *_ in SEEN), trace=trace)
    return sentinel_panels(CAT, caption, Scene("cat"), width=560, columns=3)


def gate_picture() -> Image.Image:
    gates = {"a": 0.31, "rocket": 0.78, "standing": 0.42, "between": 0.27, "two": 0.36, "towers": 0.71, "at": 0.22}
    gates |= {"night": 0.55}
    trace = tuple(WordTrace(gates={"relationship": gate}) for gate in gates.values())
    return relationship_gate(ROCKET, Caption(tuple(gates), trace=trace), width=800)


def memory_picture() -> Image.Image:
    words = "portrait of a young woman wearing a helmet".split()
    chance = np.random.default_rng(5)
    pairs = [chance.uniform(0.1, 0.9, size=(2, 2)) for _ in words]
    split = [np.stack([pair, 1 - pair], axis=-1) for pair in pairs]  # (2, 2, 2): each row adds up to one
    trace = tuple(WordTrace(gates={"fusion": two[0], "memory": two[1]}) for two in split)
    return memory_weights(Caption(tuple(words), trace=trace), ASTRONAUT, width=760)


def concepts_picture() -> Image.Image:
    concepts = [Concept("man", 0.97), Concept("phone", 0.75), Concept("clothing", 0.58), Concept("tripod", 0.41)]
    stages = {
        "text, cross-entropy": "a man in clothing talking on a phone",
        "text, with reconstruction": "a man in clothing holding a phone on a tripod",
        "images, with all losses": "a young man looking through a camera on a tripod in a field",
    }
    judged = Judgement(incorrect={"phone"}, irrelevant={"clothing"}, new={"camera", "field"}, adjectives={"young"})
    return concept_stages(CAMERA, concepts, stages, judged, width=720)


def matrix_picture() -> Image.Image:
    words = {"cup": {"cup": 0.58}, "red": {"saucer": 0.4, "handle": 0.25}, "saucer": {"saucer": 0.67}}
    words |= {"spoon": {"spoon": 0.7}, "wooden": {"table": 0.49}, "table": {"table": 0.62}}
    rows = np.stack([weights("coffee", **heights) for heights in words.values()])
    return word_region_matrix(COFFEE, scene_of("coffee"), list(words), rows, width=480)


def side_picture() -> Image.Image:
    words = tuple("a woman in a suit with a helmet".split())
    plain = {1: {"suit": 0.34, "woman": 0.24}, 4: {"flag": 0.29}, 7: {"suit": 0.31, "helmet": 0.22}}
    taught = {1: {"woman": 0.66}, 4: {"suit": 0.7}, 7: {"helmet": 0.81}}
    captions = {
        name: Caption(words, trace=tuple(WordTrace(regions=weights("astronaut", **at.get(i, {}))) for i in range(8)))
        for name, at in (("model A", plain), ("model B", taught))
    }
    return side_by_side(ASTRONAUT, scene_of("astronaut"), captions, {n: [1, 4, 7] for n in captions}, width=640)


def captions_picture() -> Image.Image:
    glow = representation_attention(COFFEE, scene_of("coffee"), np.array([0.8, 0.6, 0.7, 0.9, 0.1, 0.5]), width=320)
    found = [
        FoundCaption("a red cup of coffee on a red saucer with a small spoon", True),
        FoundCaption("an espresso on a wooden table", True),
        FoundCaption("a white cup and a plate on a counter", False, similar=True),
    ]
    return caption_results(COFFEE, found, glow, width=720)


def photos_picture() -> Image.Image:
    found = [FoundPhoto(CAMERA, True), FoundPhoto(ASTRONAUT, False), FoundPhoto(ROCKET, False)]
    return photo_results("a man in a dark coat looks through a camera on a tripod", found, width=540)


def pairs_picture() -> Image.Image:
    plain = [FoundPhoto(CAMERA, False), FoundPhoto(ASTRONAUT, False), FoundPhoto(ROCKET, False)]
    said = [
        SelfRetrieval("model A", "a tall tower in the sky", [plain[0], plain[1], FoundPhoto(ROCKET, True)]),
        SelfRetrieval(
            "model B", "a white rocket on its pad between towers at dusk", [FoundPhoto(ROCKET, True), *plain[:2]]
        ),
    ]
    return self_retrieval_sheet(ROCKET, said, width=720)


def curve_points() -> dict[str, list[tuple[float, float]]]:
    epochs = range(31)
    return {
        "first stage": [(e, 1.05 - 0.75 * 0.82**e) for e in epochs],
        "second stage": [(e, 1.046 + 0.18 * (1 - 0.85 ** (e - 20)) if e >= 20 else float("nan")) for e in epochs],
    }


def curves_picture() -> Image.Image:
    return curves(curve_points(), "A score, made up", "epoch", width=560, height=240)


PICTURES = {
    "words-on-boxes": (boxes_picture, "A photo of an astronaut; each noun of the caption has a box of its colour"),
    "attention-regions": (regions_picture, "Six panels of a cup; in each, the region its word attends to glows"),
    "sentinel": (
        sentinel_picture,
        "Bars under the words of a caption, and panels of a cat with attention over the grid",
    ),
    "relationship-gate": (gate_picture, "A rocket, and under each word of the caption a bar in two colours"),
    "memory": (memory_picture, "Under each word a two by two block of cells and a second one, darker where more"),
    "concepts": (
        concepts_picture,
        "A man with a camera, detected concepts with scores, and three captions with marked words",
    ),
    "matrix": (matrix_picture, "A table of words against cut-out regions of a coffee cup"),
    "side-by-side": (side_picture, "The same astronaut twice, with the boxes that two models' nouns attend to"),
    "captions-found": (captions_picture, "A cup, its attention map, and three captions, two of them ticked"),
    "photos-found": (photos_picture, "A sentence and three photos, the first framed green, the others red"),
    "self-retrieval": (pairs_picture, "A rocket, two captions of it, and the photos that each of them finds"),
    "curves": (curves_picture, "Two rising curves over thirty epochs"),
}


def main() -> None:
    drawn = {name: draw() for name, (draw, _) in PICTURES.items()}
    for name, picture in drawn.items():
        few = picture.quantize(80)
        save_png(few, IMAGES / f"{name}.png")
    total = sum(path.stat().st_size for path in IMAGES.glob("*.png"))
    print(f"{len(drawn)} pictures, {total / 1000:.0f} kB, in {IMAGES}")
    if len(sys.argv) > 1:
        page = Page("Pictures", "Boxes, weights and captions are made up by hand to show the form of each picture.")
        for name, (_, alt) in PICTURES.items():
            page.add(drawn[name], name.replace("-", " ").capitalize(), alt)
        page.add(curves_svg(curve_points(), "A score, made up", "epoch"), "Curves as inline SVG", "The same curves")
        page.save(sys.argv[1])


if __name__ == "__main__":
    main()
