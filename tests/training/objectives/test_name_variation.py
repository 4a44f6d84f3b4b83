"""Names that a captioner reads, left out and replaced while it learns."""

from __future__ import annotations

import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.text.vocabulary import Vocabulary
from sightline.training.objectives.name_variation import DECOYS, NameVariation, kinds_of
from sightline.vision.concept_tokens import token_names

NAMES = token_names()
PLACE = {name: place for place, name in enumerate(NAMES)}
ANIMALS = ("dog", "cat", "wallaby", "insect", "owl")
WORDS = Vocabulary(["a", "an", "the", "man", "and", "near", "sat", *ANIMALS, *(f"{name}s" for name in ANIMALS)])
CAPTIONS = ["a dog and a man", "the dogs sat", "a cat", "a man near a cat"]


def scenes(*names: tuple[str, ...]) -> SceneBatch:
    ids = torch.tensor([[PLACE[name] for name in own] for own in names])
    return SceneBatch(
        tuple(map(str, range(len(names)))),
        names=ids,
        name_scores=torch.full((*ids.shape, 2), 0.5),
        name_boxes=torch.rand(*ids.shape, 4),
    )


def words() -> torch.Tensor:
    return TextBatch.collate([caption.split() for caption in CAPTIONS], WORDS).ids


def test_names_know_their_kind_by_imagenets_tree_or_wordnet():
    kinds = dict(zip(NAMES, kinds_of(NAMES), strict=True))
    assert (kinds["leopard"], kinds["giraffe"], kinds["bus"]) == ("animal", "animal", "vehicle")
    assert kinds["grass"] == ""


def test_tools_and_containers_whose_kind_has_few_names_are_of_one_kind():
    kinds = dict(zip(NAMES, kinds_of(NAMES), strict=True))
    assert kinds["racket"] == kinds["suitcase"] == kinds["cup"] == "instrumentality"
    assert (kinds["bottle"], kinds["street"], kinds["mushroom"]) == ("bottle", "", "mushroom")
    vocabulary = Vocabulary(["a", "an", "man", "with", "racket", "suitcase", "cup", "vase"])
    told = TextBatch.collate([["a", "man", "with", "a", "racket"]], vocabulary).ids
    torch.manual_seed(0)
    variation, before = NameVariation(NAMES, vocabulary), scenes(("racket", "man", "man"))
    texts = {" ".join(vocabulary.decode(variation.rename(before, told, 1.0)[1][0].tolist())) for _ in range(40)}
    assert texts == {f"a man with a {name}" for name in ("racket", "suitcase", "cup", "vase")}


def test_a_renamed_photo_has_the_new_name_in_its_names_and_in_its_captions():
    variation, before = NameVariation(NAMES, WORDS), scenes(("dog", "man", "man"), ("man", "cat", "man"))
    torch.manual_seed(0)
    seen: set[str] = set()
    for _ in range(40):
        after, told = variation.rename(before, words(), 1.0)
        texts = [" ".join(WORDS.decode(row)) for row in told.tolist()]
        first, second = NAMES[int(after.names[0, 0])], NAMES[int(after.names[1, 1])]
        article = {"insect": "an", "owl": "an"}
        assert texts[0] == f"{article.get(first, 'a')} {first} and a man"
        assert texts[1] == f"the {first}s sat"
        assert texts[2:] == [f"{article.get(second, 'a')} {second}", f"a man near {article.get(second, 'a')} {second}"]
        assert NAMES[int(after.names[0, 1])] == "man"  # people are not renamed
        seen |= {first, second}
    assert seen == set(ANIMALS)


def test_a_name_that_no_caption_says_stays():
    variation, before = NameVariation(NAMES, WORDS), scenes(("owl", "man", "man"), ("wallaby", "man", "man"))
    after, told = variation.rename(before, words(), 1.0)
    assert torch.equal(after.names, before.names)
    assert torch.equal(told, words())


def test_a_name_without_a_plural_is_not_taken_for_the_padding_of_captions():
    vocabulary = Vocabulary(["a", "an", "man", "near", *ANIMALS])
    ids = TextBatch.collate([["a", "man", "near", "a", "dog"], ["a", "man"]], vocabulary).ids
    before = scenes(("dog", "man", "man"), ("owl", "man", "man"))
    after, _ = NameVariation(NAMES, vocabulary).rename(before, ids, 1.0)
    assert torch.equal(after.names[1], before.names[1])


def test_half_of_the_renamed_photos_keep_the_old_name_as_a_regions_and_the_new_one_as_imagenets():
    variation = NameVariation(NAMES, WORDS)
    torch.manual_seed(0)
    count, decoys = 400, 0
    many = scenes(*[("dog", "man", "man")] * count)
    after, _ = variation.rename(many, words()[:1].repeat(count, 1), 1.0)
    for ids, scores in zip(after.names.tolist(), after.name_scores.tolist(), strict=True):
        if ids[2] == PLACE["dog"]:
            decoys += 1
            assert scores[0] == [0.0, 0.5]
            assert 0 < scores[2][0] <= 0.5
            assert scores[2][1] == 0
        else:
            assert scores == [[0.5, 0.5]] * 3
    assert abs(decoys / count - DECOYS) < 0.1


def test_names_are_left_out_one_by_one_and_sometimes_all():
    torch.manual_seed(0)
    before = scenes(*[("dog", "cat", "man", "owl")] * 2000)
    left = (NameVariation(NAMES, WORDS).leave_out(before, 0.2).names >= 0).float()
    assert abs(float(left.mean()) - 0.8 * 0.9) < 0.02
    assert float((left.sum(1) == 0).float().mean()) > 0.08  # by themselves, four would be missing in 0.16 % of photos
