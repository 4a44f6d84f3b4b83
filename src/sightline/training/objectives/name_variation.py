"""Names that a captioner reads, varied while it learns: some left out, and some replaced by others of their kind.

A captioner that reads what a vision model calls things (`SceneTrans.names`) must neither ignore names nor repeat them
blindly, and must be able to say names that no caption has. So names are left out at random; and where a name stands in
the captions of its photo, another of its kind is sometimes put in its place in both: the photo shows a dog, the name
and the captions say wallaby. What is to be said is then only in the name, and every name is said in sentences about its
kind. In half of these photos the old name stays as a decoy, as what a region is called, and the new one is ImageNet's
alone: so it is outside the photos that regions learned their names from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from sightline.batch import SceneBatch
from sightline.text import wordnet
from sightline.text.grammar import indefinite_article
from sightline.text.vocabulary import PAD, UNK, Vocabulary
from sightline.vision.concept_names import name_senses
from sightline.vision.concept_tokens import imagenet_forest

FEWEST = 4  # names of a kind, below which there is little to choose from
PERSON = "person"  # whose kinds are not mistaken for each other: a name says less of people than a photo does
DECOYS = 0.5  # of renamed photos keep the old name too
LEAST_SURE = 0.4  # times the old name's score is how sure a decoy is at least
NONE = -1


class NameVariation(nn.Module):
    """Varies the names of scenes and their captions, on their device.

    Args:
        names: that scenes' `names` are places in.
        vocabulary: of the captions.
    """

    word: Tensor
    plural: Tensor
    kind: Tensor
    members: Tensor
    sizes: Tensor
    article: Tensor

    def __init__(self, names: Sequence[str], vocabulary: Vocabulary) -> None:
        super().__init__()
        word = [vocabulary.id(name) if name in vocabulary else PAD for name in names]
        plural = [_plural(name, vocabulary) for name in names]
        kind_of = kinds_of(names)
        kept = {
            kind: [place for place, own in enumerate(kind_of) if own == kind and word[place] != PAD]
            for kind in dict.fromkeys(kind_of)
            if kind and kind != PERSON
        }
        groups = {kind: places for kind, places in kept.items() if len(places) >= FEWEST}
        number = {kind: row for row, kind in enumerate(groups)}
        longest = max(map(len, groups.values()), default=1)
        members = torch.zeros(max(1, len(groups)), longest, dtype=torch.long)
        for row, places in enumerate(groups.values()):
            members[row, : len(places)] = torch.tensor(places)
        kind = [number.get(own, NONE) if word[place] != PAD else NONE for place, own in enumerate(kind_of)]
        article = [
            vocabulary.id((id > UNK and indefinite_article(vocabulary.word(id))) or "a")
            for id in range(len(vocabulary))
        ]
        tables = {
            "word": torch.tensor(word),
            "plural": torch.tensor(plural),
            "kind": torch.tensor(kind),
            "members": members,
            "sizes": torch.tensor([len(places) for places in groups.values()] or [1]),
            "article": torch.tensor(article),
        }
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)
        self._articles = tuple(vocabulary.id(one) for one in ("a", "an"))

    def leave_out(self, scenes: SceneBatch, share: float) -> SceneBatch:
        """The scenes, each name left out with probability `share`, and all names of half as many photos."""
        names = scenes.part("names", by="the variation of names")
        out = torch.rand(names.shape, device=names.device) < share
        out |= torch.rand(len(names), 1, device=names.device) < share / 2
        return replace(scenes, names=names.masked_fill(out, NONE))

    def rename(self, scenes: SceneBatch, words: Tensor, share: float) -> tuple[SceneBatch, Tensor]:
        """In a share of the photos that allow it, one name becomes another of its kind, in the captions (N, T) too."""
        names = scenes.part("names", by="the variation of names")
        count, device = len(names), names.device
        captions = words.view(count, -1)  # (B, c · T)
        known = names.clamp(min=0)
        one, many = self.word[known], self.plural[known]  # (B, k)
        spoken = (captions[:, None] == one[..., None]) | (captions[:, None] == many[..., None])  # (B, k, c · T)
        able = (names >= 0) & (self.kind[known] >= 0) & spoken.any(2)
        lot = torch.rand(names.shape, device=device).masked_fill(~able, NONE)
        slot = lot.argmax(1, keepdim=True)  # (B, 1)
        chosen = able.any(1) & (torch.rand(count, device=device) < share)  # (B,)
        old = known.gather(1, slot)[:, 0]
        group = self.kind[old].clamp(min=0)
        draw = (torch.rand(count, device=device) * self.sizes[group]).long()
        new = self.members[group, draw]
        renamed = torch.where(chosen[:, None], names.scatter(1, slot, new[:, None]), names)
        theirs = words.view(count, -1, words.shape[1])  # (B, c, T)
        single = (theirs == self.word[old][:, None, None]) & chosen[:, None, None]
        several = (theirs == self.plural[old][:, None, None]) & chosen[:, None, None] & (theirs != PAD)
        plural = torch.where(self.plural[new] == PAD, self.word[new], self.plural[new])
        told = torch.where(single, self.word[new][:, None, None], theirs)
        told = torch.where(several, plural[:, None, None], told)
        a, an = self._articles
        follows = torch.zeros_like(single)
        follows[..., :-1] = (single | several)[..., 1:]
        articles = follows & ((told == a) | (told == an))
        told = torch.where(articles, self.article[told.roll(-1, 2)], told)
        return self._decoys(replace(scenes, names=renamed), old, slot, chosen), told.view_as(words)

    def _decoys(self, scenes: SceneBatch, old: Tensor, slot: Tensor, chosen: Tensor) -> SceneBatch:
        """The old name in the last place, with the score and box that it had, in half of the renamed photos."""
        names, scores, boxes = (
            scenes.part(one, by="the variation of names") for one in ("names", "name_scores", "name_boxes")
        )
        last = names.shape[1] - 1
        both = chosen & (slot[:, 0] != last) & (torch.rand(len(names), device=names.device) < DECOYS)
        of_slot = slot[..., None]
        score = scores.gather(1, of_slot.expand(-1, -1, 2))[:, 0]  # (B, 2)
        sure = score.amax(1)
        doubt = sure * (LEAST_SURE + (1 - LEAST_SURE) * torch.rand_like(sure))
        none = torch.zeros_like(sure)
        names, scores, boxes = names.clone(), scores.clone(), boxes.clone()
        box = boxes.gather(1, of_slot.expand(-1, -1, 4))[:, 0]
        names[:, last] = torch.where(both, old, names[:, last])
        scores[:, last] = torch.where(both[:, None], torch.stack([doubt, none], 1), scores[:, last])
        boxes[:, last] = torch.where(both[:, None], box, boxes[:, last])
        told = torch.where(both[:, None], torch.stack([none, sure], 1), score)
        scores.scatter_(1, of_slot.expand(-1, -1, 2), told[:, None])
        return replace(scenes, names=names, name_scores=scores, name_boxes=boxes)


def kinds_of(names: Sequence[str]) -> list[str]:
    """The subject that each name is a kind of (animal, vehicle, food …); "" where it is none of ImageNet's."""
    subject = {chain[0]: chain[-1] for chain in imagenet_forest().chains}
    tops = [top for top in dict.fromkeys(subject.values()) if wordnet.has(top, "n")]
    synset = {wordnet.senses(top, "n")[0]: top for top in tops}
    found = []
    for name in names:
        above = [wordnet.ancestors(one) for one, _ in name_senses(name)]
        shared = frozenset.intersection(*above) if above else frozenset()
        found.append(subject.get(name) or next((top for one, top in synset.items() if one in shared), ""))
    return found


def _plural(name: str, vocabulary: Vocabulary) -> int:
    """The id of a name's regular plural, where the vocabulary has it."""
    forms = [name[:-1] + "ies"] if name.endswith("y") else []
    forms += [name + "es"] if name.endswith(("s", "x", "ch", "sh")) else [name + "s"]
    return next((vocabulary.id(form) for form in forms if form in vocabulary), PAD)
