"""A matcher that teaches or judges a captioner: frozen, with its own words, on the captioner's scenes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.batch import SceneBatch, TextBatch
from sightline.errors import ConfigError
from sightline.models.matcher import Embedding, GlobalMatcher, Matcher
from sightline.text.vocabulary import UNK
from sightline.training.objective import Context, Frozen


class Teacher(Frozen[Matcher]):
    """A matcher's checkpoint as a recipe names it. Two models meet at surface words, each with its own table of ids.

    Args:
        context: where training runs, and which finds the checkpoint.
        name: of the checkpoint.
        full_stop: captions are given to it with a full stop at the end, for matchers whose training captions had one.
    """

    def __init__(self, context: Context, name: str, full_stop: bool = False) -> None:
        checkpoint = context.checkpoint(name)
        super().__init__(checkpoint.matcher(name).to(context.device))
        self.name, self.vocabulary, self.fingerprint = name, checkpoint.vocabulary, checkpoint.fingerprint
        self.full_stop = full_stop

    def images(self, scenes: SceneBatch) -> Embedding:
        """Embedded images; scenes of another vision model than it was trained on are refused."""
        if self.fingerprint and scenes.fingerprint and self.fingerprint != scenes.fingerprint:
            raise ConfigError(
                f"{self.name} was trained on scenes {self.fingerprint}, and these are {scenes.fingerprint}",
                fix="train both models on features of one vision model",
            )
        return self.model.embed_images(scenes)

    def texts(self, sentences: Sequence[Sequence[str]], device: torch.device, nouns: Tensor | None = None) -> TextBatch:
        """Sentences as its ids; places are those of the captioner's own batch, a full stop comes after them.

        `nouns` (N, T) marks the words that matchers of parts of speech look at; by default their own config does. A
        word that it does not know is never one of them.
        """
        stop = ["."] if self.full_stop else []
        mark = getattr(self.model.config, "mark", None) if nouns is None else None
        texts = TextBatch.collate([[*words, *stop] for words in sentences], self.vocabulary, mark=mark).to(device)
        if nouns is not None:
            tagged = F.pad(nouns, (0, texts.ids.shape[1] - nouns.shape[1]))
        elif texts.tagged is not None:
            tagged = texts.tagged
        else:
            return texts
        return TextBatch(texts.words, texts.ids, texts.mask, tagged & (texts.ids != UNK))

    def fit(self, scenes: SceneBatch, sentences: Sequence[Sequence[str]]) -> Tensor:
        """(N,) raw similarity of each sentence with its image; the N / B of an image are next to each other."""
        images = self.images(scenes)
        device = next(iter(images.values())).device
        texts = self.model.embed_texts(self.texts(sentences, device))
        count, copies = len(scenes), len(sentences) // len(scenes)
        # Pairs across images are not needed; a GPU computes them sooner than it starts many small blocks.
        together = count if isinstance(self.model, GlobalMatcher) or device.type != "cpu" else 1
        found = []
        for start in range(0, count, together):
            some = _rows(images, start, start + together)
            few = _rows(texts, start * copies, (start + together) * copies)
            scores = self.model.similarity(some, few)  # (b, b · copies)
            own = torch.arange(scores.shape[1], device=device)
            found.append(scores[own // copies, own])
        return torch.cat(found).float()


def _rows(parts: Embedding, start: int, stop: int) -> Embedding:
    return {name: part[start:stop] for name, part in parts.items()}
