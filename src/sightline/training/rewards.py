"""What a sampled caption is worth: the rewards of self-critical training, all samples of a batch in one call."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from sightline.config import check_ranges
from sightline.errors import ConfigError
from sightline.metrics.bleu import Bleu
from sightline.metrics.cider import SIGMA
from sightline.metrics.cider_reward import CiderDReward
from sightline.metrics.language_metric import LanguageMetric
from sightline.metrics.meteor import ALPHA, BETA, DELTA, GAMMA
from sightline.metrics.spice import Spice
from sightline.text.lemmas import lemma
from sightline.text.vocabulary import END, PAD, UNK, Vocabulary
from sightline.training.batches import Batch
from sightline.training.objective import Context, Teacher
from sightline.training.tensor_tables import Pool, TextTable
from sightline.vision.concept_names import relations
from sightline.vision.concept_tokens import token_names

FUNCTION_WORDS = frozenset(
    """
    a about after all also an and are as at be been but by can could did do for from had has have he her his i if in
    into is it its more new no not of on one or other out over people said she so some than that the their them then
    there they this time to two up was we were what when which who will with would you
    """.split()
)
TINY = 1e-12  # what divisors are at least, so that captions without words score 0
NOTHING = -1  # the thing that a word names which names none


# (B, K) numbers, without gradients, for captions (B, K, T) of a batch's photos: START, words, END, padding; a cut one
# has no END
Reward = Callable[[Batch, Tensor], Tensor]


@dataclass(frozen=True)
class CiderReward:
    """CIDEr-D × 10 over ids, END counted as a word. Document frequencies and references are the train split's."""

    kind: Literal["cider"] = "cider"
    weight: float = 1.0

    def build(self, context: Context) -> Reward:
        return _Cider(context.pools["train"], context.device)


@dataclass(frozen=True)
class BleuReward:
    """BLEU-`order` of single sentences, 0 to 1."""

    kind: Literal["bleu"] = "bleu"
    weight: float = 1.0
    order: int = 4

    def __post_init__(self) -> None:
        check_ranges(self, order="[1, 4]")

    def build(self, context: Context) -> Reward:
        return _Language(Bleu(), f"Bleu_{self.order}", context)


@dataclass(frozen=True)
class MeteorReward:
    """METEOR 1.5 with exact matches alone, 0 to 1: no stems, synonyms or paraphrases.

    CIDEr-D alone makes captions short; METEOR asks for what they leave out. Words are compared as ids, on the model's
    device. Function words are the most frequent ones of English, as the tool's are, by a list of ours; a chunk goes on
    where two words that follow each other do so in the reference too, and the tool searches for the fewest chunks.
    """

    kind: Literal["meteor"] = "meteor"
    weight: float = 1.0

    def build(self, context: Context) -> Reward:
        return _Meteor(context.pools["train"], context.vocabulary, context.device)


@dataclass(frozen=True)
class SpiceReward:
    """SPICE (Sightline parser), 0 to 1. Slow beside the others: every sample is parsed into a scene graph."""

    kind: Literal["spice"] = "spice"
    weight: float = 1.0

    def build(self, context: Context) -> Reward:
        return _Language(Spice(), "SPICE", context)


@dataclass(frozen=True)
class MatcherReward:
    """S(I, c) of a matcher (Eq. 19), as it comes: about 0 to 1 for SCAN, where CIDEr-D is about 0 to 10."""

    model: str  # the checkpoint of any matcher
    kind: Literal["matcher"] = "matcher"
    weight: float = 1.0
    full_stop: bool = False  # whether captions are given to it with a full stop at the end

    def build(self, context: Context) -> Reward:
        teacher = Teacher(context, self.model, self.full_stop)

        def reward(batch: Batch, words: Tensor) -> Tensor:
            assert batch.scenes is not None
            return teacher.fit(batch.scenes, _decoded(words, context.vocabulary)).view(words.shape[:2])

        return reward


@dataclass(frozen=True)
class TruthReward:
    """Minus the things a caption names that nothing supports, minus `again` times the things it names twice.

    A thing is what one of the vision model's names means, in singular or plural. It is supported by references that
    name it, a kind of it, or what it is a kind of, and by names that the vision model is sure of, where scenes have
    any.
    """

    kind: Literal["truth"] = "truth"
    weight: float = 1.0
    again: float = 0.5  # the cost of a thing that is named again, in units of an unsupported one
    sure: float = 0.4  # how sure a region's name must be to support a thing

    def build(self, context: Context) -> Reward:
        return _Truth(self, context.pools["train"], context.vocabulary)


RewardConfig = CiderReward | BleuReward | MeteorReward | SpiceReward | MatcherReward | TruthReward


class _References:
    """The words of photos' references, on the device where they are compared with samples."""

    def __init__(self, pool: Pool, device: torch.device) -> None:
        texts, self._first = _captions(pool)
        self._ids, self._lengths = texts.ids.to(device), texts.lengths

    def __call__(self, photos: Tensor) -> Tensor:
        """(B, R, S) without START, with END; a photo with fewer references than others has padding in their place."""
        first, last = self._first[photos, None], self._first[photos + 1, None]
        rows = first + torch.arange(int((last - first).max()))
        real = rows < last
        rows = rows.where(real, first)
        longest = int(self._lengths[rows].max())
        device = self._ids.device
        ids = self._ids[rows.to(device), 1:longest].long()
        return ids.masked_fill_(~real[..., None].to(device), PAD)


class _Cider:
    def __init__(self, pool: Pool, device: torch.device) -> None:
        texts, first = _captions(pool)
        rows = [ids[1 : length - 1] for ids, length in zip(texts.ids.tolist(), texts.lengths.tolist(), strict=True)]
        tables = CiderDReward([rows[start:stop] for start, stop in pairwise(first.tolist())])
        self._score, self._references = DeviceCiderD(tables, device), _References(pool, device)

    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        return self._score(words[..., 1:], self._references(batch.photos))


class DeviceCiderD:
    """CIDEr-D × 10 of samples against the references of their photos, all tensors of one device.

    On a GPU the host would take as long to score as all else of a step takes. On a CPU the 300 samples of a batch take
    10 ms here and 3 with `scorer` itself, where drawing them takes seconds.

    The scores are those of `scorer`, whose tables of n-grams and weights it reads. Samples and references are word ids
    with END and padding behind them; a reference that is padding alone is none. Captions of a batch are few and short,
    so all pairs of their places are compared at once instead of looking for n-grams that two of them share.
    """

    def __init__(self, scorer: CiderDReward, device: torch.device) -> None:
        self._tables = [
            (order.bits, torch.from_numpy(order.table).to(device), torch.from_numpy(order.idf).float().to(device))
            for order in scorer.orders
        ]

    def __call__(self, samples: Tensor, references: Tensor) -> Tensor:
        """(B, K) scores of samples (B, K, T) against references (B, R, S)."""
        same = _equal(samples, samples)  # (B, K, T, T) whether two words of a sample are the same
        same_there = _equal(references, references)  # (B, R, S, S)
        same_across = _equal(samples[:, :, None], references[:, None])  # (B, K, R, T, S)
        idf, idf_there = self._weights(samples), self._weights(references)
        within, there, across = same, same_there, same_across  # whether two n-grams that begin there are the same
        total = torch.zeros(across.shape[:3], device=samples.device)  # (B, K, R)
        for n, (own, others) in enumerate(zip(idf, idf_there, strict=True)):
            if n:
                within, there = _longer(within, same, n), _longer(there, same_there, n)
                across = _longer(across, same_across, n)
            # An n-gram that is said `count` times stands in `count` places: each of these adds its share to the sums.
            count, shared = within.sum(-1), across.sum(-1)  # (B, K, T - n) in the sample, (B, K, R, T - n) in both
            weight = own.square()
            norm = (count * weight).sum(-1).sqrt()  # (B, K)
            norm_there = (there.sum(-1) * others.square()).sum(-1).sqrt()  # (B, R)
            clipped = torch.minimum(count[:, :, None], shared) * shared / count[:, :, None].clamp(min=1)
            product = (clipped * weight[:, :, None]).sum(-1)  # (B, K, R)
            total += product / (norm[:, :, None] * norm_there[:, None]).clamp(min=TINY)
        difference = _bigrams(samples)[:, :, None] - _bigrams(references)[:, None]
        total *= torch.exp(-difference.float().square() / (2 * SIGMA**2))
        real = (references != PAD).any(-1).float()[:, None]  # (B, 1, R)
        return 10 * (total * real).sum(-1) / (len(self._tables) * real.sum(-1))

    def _weights(self, words: Tensor) -> list[Tensor]:
        """For n = 1, 2, …, the weights of the n-grams that begin at each place of words (…, T): (…, T - n + 1)."""
        weights = []
        number = torch.zeros_like(words)  # of the (n - 1)-gram before the word, -1 where no reference has it
        for n, (bits, table, idf) in enumerate(self._tables):
            last = words[..., n:]
            keys = (number[..., : last.shape[-1]] << bits) | last
            keys = keys.masked_fill((last >> bits) > 0, -1)
            number = torch.full_like(keys, -1)
            if len(table):
                place = torch.searchsorted(table, keys).clamp(max=len(table) - 1)
                number = place.where(table[place] == keys, number)
            weights.append(idf[number])  # the last of `idf` is the weight of n-grams that no reference has
        return weights


def _equal(first: Tensor, second: Tensor) -> Tensor:
    """(…, T, S) whether a word of (…, T) is that of (…, S); padding is like nothing."""
    return (first[..., :, None] == second[..., None, :]) & (first != PAD)[..., :, None]


def _longer(ngrams: Tensor, words: Tensor, n: int) -> Tensor:
    """From which pairs of places on n + 1 words are the same, by those where n are, and the words n places later."""
    return ngrams[..., :-1, :-1] & words[..., n:, n:]


def _bigrams(words: Tensor) -> Tensor:
    return ((words != PAD).sum(-1) - 1).clamp(min=0)


class _Language:
    """A metric of strings; references are the words of the train split's captions, split and cut as in training."""

    def __init__(self, metric: LanguageMetric, key: str, context: Context) -> None:
        self.metric, self.key, self.vocabulary = metric, key, context.vocabulary
        self._texts, self._first = _captions(context.pools["train"])

    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        count, copies, _ = words.shape
        captions = _decoded(words, self.vocabulary)
        references = {}
        for place, photo in enumerate(batch.photos.tolist()):
            texts = [" ".join(self._texts.words[row]) for row in range(self._first[photo], self._first[photo + 1])]
            references.update({str(place * copies + copy): texts for copy in range(copies)})
        self.metric.reset()
        self.metric.update({str(place): " ".join(caption) for place, caption in enumerate(captions)}, references)
        scores = self.metric.compute().per_image
        values = [scores[str(place)][self.key] for place in range(len(captions))]
        return torch.tensor(values, dtype=torch.float32, device=words.device).view(count, copies)


class _Meteor:
    def __init__(self, pool: Pool, vocabulary: Vocabulary, device: torch.device) -> None:
        self._references = _References(pool, device)
        self._weights = torch.full((len(vocabulary),), DELTA)
        self._weights[[vocabulary.id(word) for word in FUNCTION_WORDS if word in vocabulary]] = 1 - DELTA
        self._weights[[PAD, END]] = 0.0
        self._weights = self._weights.to(device)

    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        weights = self._weights
        captions = words[..., 1:]  # (B, K, T)
        references = self._references(batch.photos)  # (B, R, S)
        references = references.masked_fill(references == END, PAD)
        earlier = (captions[..., :, None] == captions[..., None, :]).tril(-1).sum(-1)  # how often a word came before
        same = captions[:, :, None, :, None] == references[:, None, :, None, :]  # (B, K, R, T, S)
        known = ((captions != END) & (captions != PAD) & (captions != UNK))[:, :, None]
        matched = (same.sum(-1) > earlier[:, :, None]) & known  # (B, K, R, T)
        weight = (matched * weights[captions][:, :, None]).sum(-1)  # (B, K, R)
        precision = weight / weights[captions].sum(-1)[:, :, None].clamp(min=TINY)
        recall = weight / weights[references].sum(-1)[:, None].clamp(min=TINY)
        mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall).clamp(min=TINY)
        goes_on = (same[..., :-1, :-1] & same[..., 1:, 1:]).any(-1) & matched[..., :-1] & matched[..., 1:]
        count = matched.sum(-1)
        chunks = count - goes_on.sum(-1)
        caption_length = (weights[captions] > 0).sum(-1)[:, :, None]
        reference_length = (weights[references] > 0).sum(-1)[:, None]
        equal = (chunks == 1) & (count == caption_length) & (count == reference_length)  # nothing is fragmented then
        penalty = GAMMA * (chunks / count.clamp(min=1)).pow(BETA).masked_fill(equal, 0)
        return (mean * (1 - penalty)).amax(2)


class _Truth:
    def __init__(self, config: TruthReward, pool: Pool, vocabulary: Vocabulary) -> None:
        self.config, names = config, token_names()
        texts, first = _captions(pool)
        place = {name: number for number, name in enumerate(names)}
        self._thing = torch.full((len(vocabulary),), NOTHING)
        for id in range(UNK + 1, len(vocabulary)):
            word = vocabulary.word(id)
            self._thing[id] = place.get(word, place.get(lemma(word, "n"), NOTHING))  # the name, or its plural
        implied, undecided = relations(names)
        supports = torch.as_tensor(implied | implied.T | undecided | undecided.T)
        self._supports = supports.float()  # (M, M) whether a thing that is there supports that another is named
        self._named = torch.zeros(len(pool), len(names), dtype=torch.bool)  # (P, M) by references
        photo = torch.repeat_interleave(first.diff())  # (captions,)
        things = self._thing[texts.ids.long()]  # (captions, T)
        row, _ = (things != NOTHING).nonzero(as_tuple=True)
        self._named[photo[row], things[things != NOTHING]] = True

    def __call__(self, batch: Batch, words: Tensor) -> Tensor:
        device = words.device
        self._thing, self._supports, self._named = (
            table.to(device) for table in (self._thing, self._supports, self._named)
        )
        things = self._thing[words[..., 1:]]  # (B, K, T)
        named = things != NOTHING
        again = (things[..., :, None] == things[..., None, :]).tril(-1).any(-1) & named
        supported = self._there(batch) @ self._supports > 0  # (B, M)
        right = supported.gather(1, things.clamp(min=0).flatten(1)).view_as(things)
        wrong = named & ~right & ~again
        return -(wrong.sum(-1) + self.config.again * again.sum(-1)).float()

    def _there(self, batch: Batch) -> Tensor:
        """(B, M) 1 for things that references name, or the vision model is sure of."""
        there = self._named[batch.photos.to(self._named.device)].float()
        scenes = batch.scenes
        if scenes is not None and scenes.names is not None and scenes.name_scores is not None:
            sure = (scenes.names >= 0) & (scenes.name_scores[..., 0] >= self.config.sure)
            there.scatter_reduce_(1, scenes.names.clamp(min=0), sure.float(), "amax")
        return there


def _captions(pool: Pool) -> tuple[TextTable, Tensor]:
    texts, first = pool.captions("this reward")
    if not first.diff().all():
        raise ConfigError("a training photo has no caption to be compared with", fix="leave it out of the split")
    return texts, first


def _decoded(words: Tensor, vocabulary: Vocabulary) -> list[list[str]]:
    return [vocabulary.decode(row) for row in words.flatten(0, 1).tolist()]
