"""Names that a captioner reads, varied while it learns: some left out, and some replaced by others of their kind.

A captioner that reads what a vision model calls things (`SceneTrans.names`) must neither ignore names nor repeat them
blindly, and must be able to say names that no caption has. So names are left out at random; and where a name stands in
the captions of its photo, another of its kind is sometimes put in its place in both: the photo shows a dog, the name
and the captions say wallaby. What is to be said is then only in the name, and every name is said in sentences about its
kind. In half of these photos the old name stays as a decoy, as what a region is called, and the new one is ImageNet's
alone: so it is outside the photos that regions learned their names from.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from sightline.batch import SceneBatch
from sightline.text import wordnet
from sightline.text.grammar import indefinite_article
from sightline.text.vocabulary import PAD, UNK, Vocabulary
from sightline.vision.concept_names import name_senses
from sightline.vision.concept_tokens import imagenet_forest

FEWEST = 4  # names of a kind, below which there is little to choose from
# WordNet's word for tools, containers and devices: the kind of rackets, suitcases and others whose own has few names
INSTRUMENTALITY = "instrumentality"
PERSON = "person"  # whose kinds are not mistaken for each other: a name says less of people than a photo does
DECOYS = 0.5  # of renamed photos keep the old name too
LEAST_SURE = 0.4  # times the old name's score is how sure a decoy is at least
NONE = -1  # no name, or no kind
BY = "the variation of names"  # who reads names of scenes, in errors


class NameVariation(nn.Module):
    """Varies the names of scenes, which are places in `names`, and their captions, on their device."""

    word: Tensor  # (M,) the id of each name, PAD where captions cannot say it
    plural: Tensor  # (M,) the id of its plural, PAD where there is none
    kind: Tensor  # (M,) its row in `members`, NONE where it cannot be replaced
    members: Tensor  # (kinds, most) the names of each kind
    sizes: Tensor  # (kinds,) how many they are
    article: Tensor  # (V,) the id of `a` or `an`, as each word wants it

    def __init__(self, names: Sequence[str], vocabulary: Vocabulary) -> None:
        super().__init__()
        word = [vocabulary.id(name) if name in vocabulary else PAD for name in names]
        by_kind: dict[str, list[int]] = {}
        for place, kind in enumerate(kinds_of(names)):
            if kind and kind != PERSON and word[place] != PAD:
                by_kind.setdefault(kind, []).append(place)
        groups = [places for places in by_kind.values() if len(places) >= FEWEST] or [[0]]
        row_of = {place: row for row, places in enumerate(groups) for place in places if len(places) >= FEWEST}
        articles = [indefinite_article(vocabulary.word(id)) if id > UNK else "a" for id in range(len(vocabulary))]
        tables = {
            "word": word,
            "plural": [_plural(name, vocabulary) for name in names],
            "kind": [row_of.get(place, NONE) for place in range(len(names))],
            "sizes": [len(places) for places in groups],
            "article": [vocabulary.id(article or "a") for article in articles],
        }
        for name, table in tables.items():
            self.register_buffer(name, torch.tensor(table), persistent=False)
        members = pad_sequence([torch.tensor(places) for places in groups], batch_first=True)
        self.register_buffer("members", members, persistent=False)
        self._articles = vocabulary.id("a"), vocabulary.id("an")

    def leave_out(self, scenes: SceneBatch, share: float) -> SceneBatch:
        """The scenes, each name left out with probability `share`, and all names of half as many photos."""
        names = scenes.part("names", by=BY)
        out = torch.rand(names.shape, device=names.device) < share
        out |= torch.rand(len(names), 1, device=names.device) < share / 2
        return replace(scenes, names=names.masked_fill(out, NONE))

    def rename(self, scenes: SceneBatch, words: Tensor, share: float) -> tuple[SceneBatch, Tensor]:
        """In a share of the photos that allow it, one name becomes another of its kind, in the captions (N, T) too."""
        names = scenes.part("names", by=BY)  # (B, k)
        count, device = len(names), names.device
        captions = words.view(count, -1, words.shape[1])  # (B, c, T)
        places = names.clamp(min=0)
        able = (names >= 0) & (self.kind[places] >= 0) & self._in_captions(captions, places)
        lot = torch.rand(names.shape, device=device).masked_fill(~able, NONE)
        slot = lot.argmax(1, keepdim=True)  # (B, 1)
        chosen = able.any(1) & (torch.rand(count, device=device) < share)  # (B,)
        old = places.gather(1, slot)[:, 0]
        group = self.kind[old].clamp(min=0)
        draw = (torch.rand(count, device=device) * self.sizes[group]).long()
        new = self.members[group, draw]
        renamed = torch.where(chosen[:, None], names.scatter(1, slot, new[:, None]), names)
        captions = self._replace(captions, old, new, chosen)
        return self._decoys(replace(scenes, names=renamed), old, slot, chosen), captions.view_as(words)

    def _in_captions(self, captions: Tensor, places: Tensor) -> Tensor:
        """(B, k) True where a name, or its plural, is among the words of its photo's captions (B, c, T)."""
        words = captions.flatten(1)[:, None]  # (B, 1, c · T)
        equal = (words == self.word[places][..., None]) | (words == self.plural[places][..., None])  # (B, k, c · T)
        return (equal & (words != PAD)).any(2)

    def _replace(self, captions: Tensor, old: Tensor, new: Tensor, chosen: Tensor) -> Tensor:
        """The captions (B, c, T) of `chosen` photos (B,), the new name for the old one, with the article it wants."""
        old, new, chosen = old[:, None, None], new[:, None, None], chosen[:, None, None]
        singular = (captions == self.word[old]) & chosen
        plural = (captions == self.plural[old]) & chosen & (captions != PAD)
        new_plural = torch.where(self.plural[new] == PAD, self.word[new], self.plural[new])
        captions = torch.where(singular, self.word[new], captions)
        captions = torch.where(plural, new_plural, captions)
        before = torch.zeros_like(singular)
        before[..., :-1] = (singular | plural)[..., 1:]
        a, an = self._articles
        articles = before & ((captions == a) | (captions == an))
        return torch.where(articles, self.article[captions.roll(-1, 2)], captions)

    def _decoys(self, scenes: SceneBatch, old: Tensor, slot: Tensor, chosen: Tensor) -> SceneBatch:
        """The old name in the last place, with the score and box that it had, in half of the renamed photos."""
        names = scenes.part("names", by=BY).clone()
        scores = scenes.part("name_scores", by=BY).clone()  # (B, k, 2)
        boxes = scenes.part("name_boxes", by=BY).clone()
        last = names.shape[1] - 1
        both = chosen & (slot[:, 0] != last) & (torch.rand(len(names), device=names.device) < DECOYS)
        of_slot = slot[..., None]
        score = scores.gather(1, of_slot.expand(-1, -1, 2))[:, 0]  # (B, 2) of regions, of ImageNet
        sure = score.amax(1)
        decoy = sure * (LEAST_SURE + (1 - LEAST_SURE) * torch.rand_like(sure))
        zero = torch.zeros_like(sure)
        box = boxes.gather(1, of_slot.expand(-1, -1, 4))[:, 0]
        names[:, last] = torch.where(both, old, names[:, last])
        scores[:, last] = torch.where(both[:, None], torch.stack([decoy, zero], 1), scores[:, last])
        boxes[:, last] = torch.where(both[:, None], box, boxes[:, last])
        score = torch.where(both[:, None], torch.stack([zero, sure], 1), score)
        scores.scatter_(1, of_slot.expand(-1, -1, 2), score[:, None])
        return replace(scenes, names=names, name_scores=scores, name_boxes=boxes)


def kinds_of(names: Sequence[str]) -> list[str]:
    """The subject of ImageNet that each name is a kind of (animal, vehicle, food …).

    Where a subject has fewer than `FEWEST` names, or there is none, a thing is of the kind `INSTRUMENTALITY` if it is
    one, so that it is renamed too: the captioner learns to copy what names become. Others keep theirs, or have "".
    """
    subject = {chain[0]: chain[-1] for chain in imagenet_forest().chains}
    tops = [top for top in dict.fromkeys(subject.values()) if wordnet.has(top, "n")]
    synset_of = {top: wordnet.senses(top, "n")[0] for top in tops}
    kinds_by_name = []
    for name in names:
        ancestors = [wordnet.ancestors(sense) for sense, _ in name_senses(name)]
        shared = frozenset.intersection(*ancestors) if ancestors else frozenset()
        above = (top for top, synset in synset_of.items() if synset in shared)
        kinds_by_name.append(subject.get(name) or next(above, ""))
    sizes, top = Counter(kinds_by_name), wordnet.senses(INSTRUMENTALITY, "n")[2]
    return [
        INSTRUMENTALITY if (not kind or sizes[kind] < FEWEST) and _is_a(name, top) else kind
        for name, kind in zip(names, kinds_by_name, strict=True)
    ]


def _is_a(name: str, synset: int) -> bool:
    """True where all that a name can mean is a kind of `synset`."""
    senses = name_senses(name)
    return bool(senses) and all(synset in wordnet.ancestors(sense) for sense, _ in senses)


def _plural(name: str, vocabulary: Vocabulary) -> int:
    """The id of a name's regular plural, where the vocabulary has it."""
    forms = [name[:-1] + "ies"] if name.endswith("y") else []
    forms += [name + "es"] if name.endswith(("s", "x", "ch", "sh")) else [name + "s"]
    return next((vocabulary.id(form) for form in forms if form in vocabulary), PAD)
