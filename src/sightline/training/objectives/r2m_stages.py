"""R²M's two objectives: retell sentences from their concepts (Eq. 10-11), then tell images apart by captions (12-13).

Guo et al., "Recurrent Relational Memory Network for Unsupervised Image Captioning", IJCAI 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from sightline.batch import SceneBatch
from sightline.config import check_ranges
from sightline.decoding.decode import decode
from sightline.decoding.rules import Rules
from sightline.decoding.strategies import Greedy
from sightline.errors import ConfigError
from sightline.models.r2m import R2M
from sightline.text.vocabulary import PAD
from sightline.training.batches import Batch, Batching
from sightline.training.cuda_graphs import Graphs
from sightline.training.objective import Context, Losses, Objective, Progress, mode, no_gradients
from sightline.training.objectives.triplet import hinge
from sightline.training.tensor_tables import Pool

Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class R2MTextConfig:
    """The choices of R²M's text stages."""

    kind: Literal["r2m-text"] = "r2m-text"
    # β of Eq. 11, the weight of L_rec; 0 is the first stage, L_XE alone, which leaves the reconstructor out.
    beta: float = 0.0
    # over the d dimensions of v, L_rec is their `mean`, as in the authors' code, or their `sum`, as printed, which
    # weighs d times more beside L_XE
    reconstruction: Reduction = "mean"
    graphs: bool = True  # on a CUDA device, run the recurrence as CUDA graphs: the same losses several times sooner

    def __post_init__(self) -> None:
        check_ranges(self, beta="[0, ∞)")

    def build(self, context: Context) -> R2MText:
        return R2MText(self)


class R2MText(Objective):
    """L_S = L_XE + β · L_rec over sentences S with their concepts.

    Inputs: scenes that hold the concepts of a sentence, and the sentence itself.

        L_XE  = -Σ_t ln p(w_t | w_1 … w_{t-1}, v)   (Eq. 10)   here the mean over all words and ENDs of the batch
        L_rec = ‖v - ṽ‖²                             (Eq. 11)   mean over sentences, mean or sum over dimensions

    The loss of a step is one mean plus β times the other. Since sums are divided by the number of words and ENDs, the
    sum of L_rec is its mean times that number; over accumulated batches it is weighted by their words.

    Section 2.1 reads concepts in random order: in training each step shuffles them, in evaluation they keep theirs.
    Gradients of L_rec reach both v and ṽ, so encoder, decoder and reconstructor learn from it.

    Relations: L_XE is `cross-entropy` from concepts. `r2m-image` goes on with images where no sentence is known.

    Parts: `cross-entropy` and, with β > 0, `reconstruction`.
    """

    config: R2MTextConfig

    def __init__(self, config: R2MTextConfig) -> None:
        super().__init__(config)
        self._graphs = Graphs(config.graphs)

    def weight(self, batch: Batch) -> float:
        return self.count_words(batch)

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model, texts, concepts = _r2m(self, model), self.captions(batch), self.scenes(batch)
        if len(texts) != len(concepts):
            fix = "set batch.of to pairs: each sentence has its own concepts"
            raise ConfigError(f"{len(texts)} sentences for {len(concepts)} lists of concepts", fix=fix)
        memory = model.encode(shuffle_concepts(concepts) if model.training else concepts)
        with self._graphs.on(model.decoder, model.reconstructor):
            hidden, _ = model.unroll(memory, texts.ids[:, :-1])
            cross_entropy = -model.target_log_probs(hidden, texts.ids[:, 1:]).sum()  # Eq. 10
            if self.config.beta == 0:
                return Losses(cross_entropy, {"cross-entropy": cross_entropy})
            rebuilt = model.reconstruct(hidden, texts.lengths - 1)
        mean = reconstruction(memory["concepts"], rebuilt, self.config.reconstruction).mean()
        rebuilding = mean * texts.mask[:, 1:].sum()
        total = cross_entropy + self.config.beta * rebuilding  # Eq. 11
        return Losses(total, {"cross-entropy": cross_entropy, "reconstruction": rebuilding})


@torch.no_grad()
def text_loss(model: Any, pool: Pool, config: R2MTextConfig, batch: int = 64) -> dict[str, float]:
    """L_S of held-out text and its parts: `loss`, `cross-entropy` and, with β > 0, `reconstruction`.

    L_XE is the mean over all words and ENDs, L_rec the mean over all sentences.
    """
    texts, first = pool.captions("r2m-text")
    owner = torch.repeat_interleave(first.diff())  # (M,) the photo of each caption
    objective, device = R2MText(replace(config, graphs=False)), next(model.parameters()).device
    tokens, means = float((texts.lengths - 1).sum()), dict[str, float]()
    for rows in torch.split(torch.arange(len(texts)), 2 * batch):  # every sentence once, with its concepts
        part = Batch(owner[rows], pool.scene_batch(owner[rows]), texts.batch(rows), rows)
        words = objective.weight(part)
        for name, total in objective(model, part.to(device), Progress()).parts.items():
            share = words / tokens if name == "cross-entropy" else len(rows) / len(texts)
            means[name] = means.get(name, 0.0) + float(total) / words * share
    return {"loss": means["cross-entropy"] + config.beta * means.get("reconstruction", 0.0), **means}  # Eq. 11


def reconstruction(v: Tensor, rebuilt: Tensor, reduce: Reduction) -> Tensor:
    """(N,) L_rec of each row: ‖v - ṽ‖² (N, d), or that divided by d."""
    squares = (v - rebuilt).square()
    return squares.mean(1) if reduce == "mean" else squares.sum(1)


def shuffle_concepts(scenes: SceneBatch) -> SceneBatch:
    """Each scene's concepts in a random order of their own, drawn from torch's generator; padding comes last."""
    concepts, mask = scenes.part("concepts", by="R²M"), scenes.part("concept_mask", by="R²M")
    order = torch.rand(concepts.shape, device=concepts.device).masked_fill(~mask, 2).argsort(1)
    parts: dict[str, Any] = {"concepts": concepts, "concept_mask": mask, "concept_scores": scenes.concept_scores}
    return replace(scenes, **{name: part.gather(1, order) for name, part in parts.items() if part is not None})


def _r2m(objective: Objective, model: Any) -> R2M:
    trained: R2M = objective.expect(model, R2M, "the model r2m", "set model.kind to r2m, or train otherwise")
    return trained


Negatives = Literal["mean", "hardest"]


@dataclass(frozen=True)
class R2MImageConfig:
    """The choices of R²M's image stages."""

    kind: Literal["r2m-image"] = "r2m-image"
    gamma: float = 0.0  # γ of Eq. 13, the weight of L_rec; 0 is the third stage, L_M alone.
    margin: float = 0.2  # m of Eq. 12.
    # L_M is the `mean` over all negatives, or takes the `hardest` alone, as printed. The hardest of many make all
    # scores equal: ṽ shrinks, and the language breaks.
    negatives: Negatives = "mean"
    # sentences of the corpus beside every batch of photos, whose L_S is added; 0 is photos alone, as in the paper. L_I
    # gives the matrix of words, W_d, no gradient while the memories that it reads move.
    text: int = 256
    beta: float = 1.0  # β of that L_S
    reconstruction: Reduction = "mean"  # `mean` or `sum` over dimensions, as in `r2m-text`
    max_steps: int = 40  # words that are said at most, END counted; 40 in the authors' code
    # whether captions are said with dropout acting, as training finds the model; otherwise they are those the model
    # would say
    dropout_in_decoding: bool = False
    # as the authors' code: L_M is `released_matching`, whatever `negatives` says, and the unknown word may be said
    released_code: bool = False
    graphs: bool = True  # on a CUDA device, run the recurrence as CUDA graphs

    def __post_init__(self) -> None:
        check_ranges(self, gamma="[0, ∞)", margin="[0, ∞)", text="[0, ∞)", beta="[0, ∞)")
        check_ranges(self, max_steps="[2, ∞)")  # a word and END

    def build(self, context: Context) -> R2MImage:
        return R2MImage(self)


class R2MImage(Objective):
    """L_I = L_M + γ · L_rec over images I, mean over the images of a batch, and L_S of a batch of text beside it.

    Inputs: scenes with concepts and a global vector, two at least. The model says a caption C for each, greedily and
    without gradients, then reads it with gradients: they flow through memories, encoder, reconstructor and the
    projection of image vectors, not through the choice of words.

        S(I, C) = ⟨v̂(I), ṽ(C)⟩
        L_M   = [m - S(I, C) + S(I', C)]₊ + [m - S(I, C) + S(I, C')]₊   (Eq. 12)   mean over, or hardest, I', C'
        L_rec = ‖v - ṽ‖²                                                (Eq. 13)   mean or sum over dimensions

    I' and C' are of the batch. Images with the same set of concepts are no negatives of each other: R²M cannot tell
    them apart, since it says the same of both. An image without negatives has no L_M.

    L_S is that of `r2m-text`, a mean over its own batch; with several processes, each weighs it by its images.

    ṽ is rebuilt from the memories up to END. A caption that has none after `max_steps` counts up to its last step,
    whose memory does not depend on what would be said there, END or a word.

    Relations: L_M is `hinge` of `triplet` with another similarity; L_rec is that of `r2m-text`.

    Parts: `matching`, `words` (how long captions are, END counted), `norm` (‖ṽ‖), `R@1` (of 100 images, those whose
    own caption scores above those of all negatives), with γ > 0 `reconstruction`, and with text `text` (L_S) and
    `text cross-entropy`.
    """

    config: R2MImageConfig

    def __init__(self, config: R2MImageConfig) -> None:
        super().__init__(config)
        self._graphs = Graphs(config.graphs)
        # without graphs, which hold one batch of a memory at a time: that is the photos'
        self._text = R2MText(R2MTextConfig(beta=config.beta, reconstruction=config.reconstruction, graphs=False))
        if config.text:
            self.beside = Batching("pairs", config.text, pool="corpus", by_length=True)

    def weight(self, batch: Batch) -> float:
        return float(len(self.scenes(batch)))

    def forward(self, model: Any, batch: Batch, progress: Progress) -> Losses:
        model, images = _r2m(self, model), self.scenes(batch)
        if len(images) < 2:
            raise ConfigError("one image has no negatives", fix="set batch.size to at least 2 per process")
        if model.training:
            images = shuffle_concepts(images)
        words = self._greedy_captions(model, images)  # (B, T + 1)
        memory = model.encode(images)
        lengths = (words[:, 1:] != PAD).sum(1)
        with self._graphs.on(model.decoder, model.reconstructor):
            hidden, _ = model.unroll(memory, words[:, :-1])
            rebuilt = model.reconstruct(hidden, lengths)  # (B, d)
        scores = model.image_vector(images).float() @ rebuilt.float().T  # (B, B), image and caption
        negatives = ~same_concepts(images)
        total = matching = self._matching(scores, negatives).sum()  # Eq. 12
        ahead = (scores.diagonal()[:, None] > scores.masked_fill(~negatives, -torch.inf)).all(1)
        norm = rebuilt.detach().norm(dim=1).sum()
        parts = {"matching": matching, "words": lengths.sum(), "norm": norm, "R@1": 100 * ahead.sum()}
        if self.config.gamma:
            parts["reconstruction"] = reconstruction(memory["concepts"], rebuilt, self.config.reconstruction).sum()
            total = total + self.config.gamma * parts["reconstruction"]  # Eq. 13
        if self.config.text:
            parts |= self._beside(model, batch, progress)
            total = total + parts["text"]  # Eq. 11
        return Losses(total, parts)

    def _matching(self, scores: Tensor, negatives: Tensor) -> Tensor:
        """(B,) L_M of each image."""
        if self.config.released_code:
            return released_matching(scores, self.config.margin)
        if self.config.negatives == "hardest":
            return hinge(scores, self.config.margin, mask=negatives)
        return hinge(scores, self.config.margin, hardest=False, mask=negatives) / negatives.sum(1).clamp(min=1)

    def _beside(self, model: R2M, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        """L_S of the text beside the photos, times the number of photos, by which all is divided."""
        assert batch.beside is not None
        losses = self._text(model, batch.beside, progress)
        scale = self.weight(batch) / self._text.weight(batch.beside)
        return {"text": losses.total * scale, "text cross-entropy": losses.parts["cross-entropy"] * scale}

    def _greedy_captions(self, model: R2M, images: SceneBatch) -> Tensor:
        """The most probable words, (B, T + 1) with START and END."""
        rules = Rules(max_words=self.config.max_steps - 1, suppress_unk=not self.config.released_code)
        device = images.part("concepts", by="R²M").device
        with mode(model, model.training and self.config.dropout_in_decoding), no_gradients(device):
            return decode(model, model.encode(images), Greedy(), rules).words[:, 0]


def same_concepts(images: SceneBatch) -> Tensor:
    """(B, B) True where two images, or an image and itself, have the same set of concepts."""
    concepts, mask = images.part("concepts", by="R²M"), images.mask("concepts")
    sets = concepts.masked_fill(~mask, PAD).sort(1).values  # a concept is listed once
    return (sets[:, None] == sets[None]).all(-1)


def released_matching(scores: Tensor, margin: float) -> Tensor:
    """(B,) L_M of each pair as the authors' code has it: (B, B) scores of images (rows) and captions (columns).

    The diagonal is among the negatives, and the maxima run over the other axis than in Eq. 12: over images i of
    [m + S(i, j) - S(i, i)]₊ for caption j, and over captions j of [m + S(i, j) - S(j, j)]₊ for image i. Each is m at
    least, so the loss is never below 2m, and a pair that is ahead of all others gets no gradient, however small its
    lead: in effect the margin is 0.

    >>> released_matching(Tensor([[9, 0], [0, 9]]), margin=0.2)
    tensor([0.4000, 0.4000])
    """
    scores = scores.float()
    pairs = scores.diagonal()
    of_captions = (margin + scores - pairs[:, None]).clamp(min=0).amax(0)
    of_images = (margin + scores - pairs[None]).clamp(min=0).amax(1)
    return of_captions + of_images
