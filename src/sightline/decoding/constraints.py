"""`Rules` as tensors over a vocabulary's ids, and the runs of words in hypotheses that they ask about."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.decoding.rules import Rules
from sightline.errors import ConfigError
from sightline.text.grammar import ANOTHER, BETWEEN, NEVER_LAST, noun_forms
from sightline.text.vocabulary import END, PAD, START, UNK, Vocabulary

_NOTHING = PAD  # it is never said, so to forbid it once more changes nothing


class WordRules:
    """`Rules` over the ids of one model, on one device. `must_include` is in `wanted`, the phrases as ids."""

    def __init__(self, rules: Rules, vocab_size: int, vocabulary: Vocabulary | None, device: torch.device) -> None:
        if vocabulary is None and rules.name_words:
            raise ConfigError("these rules name words, and no vocabulary was given", fix="give the model's vocabulary")
        if vocabulary is not None and len(vocabulary) != vocab_size:
            what = f"a model of {vocab_size} ids with a vocabulary of {len(vocabulary)}"
            raise ConfigError(what, fix="give the model's own vocabulary")
        self.rules = rules
        self.vocabulary = vocabulary or Vocabulary(())
        wanted, unwanted = self._wanted_phrases(), self._unwanted_phrases()
        self._check(wanted, unwanted)
        self.wanted = [_tensor(phrase, device) for phrase in wanted]
        self.wanted_words = sum(map(len, wanted))
        # By length, so that all phrases of one length are compared in one go: (phrases, words).
        longer = sorted((phrase for phrase in unwanted if len(phrase) > 1), key=len)
        self._unwanted = [_tensor(list(phrases), device) for _, phrases in itertools.groupby(longer, len)]
        single = [phrase[0] for phrase in unwanted if len(phrase) == 1]
        self._never = _tensor([PAD, START, *([UNK] if rules.suppress_unk else []), *single], device)
        self._never_last = _tensor(_known_ids(NEVER_LAST if rules.bad_endings else (), self.vocabulary), device)
        # (V,) END after a word that cannot be the last, else nothing.
        self._end_after = torch.where(_mask(self._never_last, vocab_size), END, _NOTHING)
        may_repeat = {id for phrase in wanted for id in phrase}
        self._nouns = NounForms(self.vocabulary, may_repeat, device) if rules.no_repeat_noun else None

    def apply(self, log_probs: Tensor, words: Tensor) -> Penalties:
        """Write -inf over what may not follow, subtract what is to be avoided. Both in place.

        Args:
            log_probs: (N, V) of the next word.
            words: (N, 1 + t) START and the t words before it.
        """
        count = words.shape[1] - 1
        if count == self.rules.max_words:
            ending = log_probs[:, END].clone()
            log_probs.fill_(-torch.inf)
            log_probs[:, END] = ending
        log_probs.index_fill_(1, self._never, -torch.inf)
        if count < self.rules.min_words:
            log_probs[:, END] = -torch.inf
        if count == self.rules.max_words - 1:
            log_probs.index_fill_(1, self._never_last, -torch.inf)  # the last word, after which END must follow
        forbidden = list(self._forbidden(words))
        if forbidden:
            log_probs.scatter_(1, torch.cat(forbidden, 1), -torch.inf)
        penalties = self._penalties(words)
        if penalties.words.shape[1]:
            log_probs.scatter_add_(1, penalties.words, -penalties.amounts)
        return penalties

    def _forbidden(self, words: Tensor) -> Iterable[Tensor]:
        """(N, m) ids that may not come next, some of them `_NOTHING`."""
        last = words[:, -1:]
        if len(self._never_last):
            yield self._end_after[last]
        if self.rules.no_repeat_word:
            yield last
        if self.rules.no_repeat_ngram:
            last_words, matches = repeats(words[:, 1:], self.rules.no_repeat_ngram)
            yield torch.where(matches, last_words, _NOTHING)
        if self._nouns is not None:
            yield self._nouns.forbid(words)
        for phrases in self._unwanted:  # (p, length)
            length = phrases.shape[1]
            if words.shape[1] >= length:
                begun = (words[:, None, 1 - length :] == phrases[:, :-1]).all(2)  # (N, p)
                yield torch.where(begun, phrases[:, -1], _NOTHING)
        if self.wanted:
            met, _ = progress(words, self.wanted)
            yield torch.where(met < self.wanted_words, END, _NOTHING)[:, None]

    def _penalties(self, words: Tensor) -> Penalties:
        if not self.rules.repeat_penalty:
            return Penalties(words[:, :0], words[:, :0].float())
        last_words, matches = repeats(words[:, 1:], 3)
        return Penalties(last_words, matches * self.rules.repeat_penalty)

    def _wanted_phrases(self) -> list[list[int]]:
        """`must_include` as ids; an error names the first word that the vocabulary does not have."""
        phrases = []
        for phrase in self.rules.must_include:
            words = self._spelled(phrase)
            for word in words:
                if word not in self.vocabulary:
                    near = near_words(word, self.vocabulary)
                    hint = f"near words it knows: {near}" if near else "choose a word of its vocabulary"
                    raise ConfigError(f"the model does not know the word {word!r} of `must_include`", fix=hint)
            phrases.append([self.vocabulary.id(word) for word in words])
        return phrases

    def _unwanted_phrases(self) -> list[list[int]]:
        """`must_not` as ids, without phrases that the model cannot say anyway."""
        phrases = [self._spelled(phrase) for phrase in self.rules.must_not]
        sayable = [words for words in phrases if all(word in self.vocabulary for word in words)]
        return [[self.vocabulary.id(word) for word in words] for words in sayable]

    def _spelled(self, phrase: str) -> list[str]:
        """The words of a phrase as the vocabulary has them: as they are, or in small letters."""
        return [word if word in self.vocabulary else word.lower() for word in phrase.split()]

    def _check(self, wanted: list[list[int]], unwanted: list[list[int]]) -> None:
        for phrase, text in zip(wanted, self.rules.must_include, strict=True):
            if any(_contains(phrase, other) for other in unwanted):
                raise ConfigError(f"{text!r} is in `must_include`, and `must_not` forbids it", fix="remove one of them")
        count = sum(map(len, wanted))
        if count > self.rules.max_words:
            what = f"`must_include` has {count} words, and captions have at most {self.rules.max_words}"
            raise ConfigError(what, fix="ask for fewer words, or allow longer captions (--length, max_words)")


@dataclass(frozen=True, eq=False)
class Penalties:
    """What was subtracted: (N, m) ids and amounts, an id as often as it was used."""

    words: Tensor
    amounts: Tensor

    def of(self, chosen: Tensor) -> Tensor:
        """(N, k) what the chosen words (N, k) were charged."""
        return ((chosen.unsqueeze(2) == self.words.unsqueeze(1)) * self.amounts.unsqueeze(1)).sum(2)


class NounForms:
    """The nouns that hypotheses have said, in all their forms, but for ids that `may_repeat`.

    The forms of a word are looked up when it is first said.
    """

    MOST = 4  # forms of a noun in one vocabulary

    def __init__(self, vocabulary: Vocabulary, may_repeat: Collection[int], device: torch.device) -> None:
        self._vocabulary, self._may_repeat = vocabulary, frozenset(may_repeat)
        self._looked_up = {PAD, START, END, UNK}
        self._forms = torch.full((len(vocabulary), self.MOST), _NOTHING, dtype=torch.long, device=device)
        self._before_another = _mask(_tensor(_known_ids(ANOTHER, vocabulary), device), len(vocabulary))
        self._between = _mask(_tensor(_known_ids(BETWEEN, vocabulary), device), len(vocabulary))

    def forbid(self, words: Tensor) -> Tensor:
        """(N, m) ids that may not come after START and words (N, 1 + t), some of them `_NOTHING`."""
        for id in set(words[:, -1].tolist()) - self._looked_up:
            self._look_up(id)
        forms = self._forms[words]  # (N, 1 + t, MOST)
        another = self._before_another[words[:, -2:]].any(1)
        forms = forms.masked_fill(another[:, None, None], _NOTHING)
        if words.shape[1] > 2:  # the noun before "by" may follow it
            forms[:, -2] = forms[:, -2].masked_fill(self._between[words[:, -1], None], _NOTHING)
        return forms.flatten(1)

    def _look_up(self, id: int) -> None:
        self._looked_up.add(id)
        forms = _known_ids(noun_forms(self._vocabulary.word(id)), self._vocabulary)
        forms = [form for form in forms if form not in self._may_repeat][: self.MOST]
        if forms:
            self._forms[id, : len(forms)] = torch.tensor(forms, device=self._forms.device)


def repeats(words: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The words that would end an n-gram which (N, t) `words` already hold.

    Returns (N, t - n + 1) last words of its n-grams, and where the n - 1 words before are those said last.
    """
    if words.shape[1] < n:
        return words[:, :0], words[:, :0].bool()
    ngrams = words.unfold(1, n, 1)  # (N, t - n + 1, n)
    latest = words[:, words.shape[1] - n + 1 :]  # (N, n - 1)
    return ngrams[..., -1], (ngrams[..., :-1] == latest.unsqueeze(1)).all(-1)


def progress(words: Tensor, wanted: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """How far (M, t) hypotheses have come with the wanted phrases.

    Returns (M,) the words of complete phrases, plus those of the longest one begun; and (M, phrases) for each phrase
    the word that takes it on. The word that takes on the longest adds at least 1, so that hypotheses which never fall
    behind exist; the number of wanted words is reached only when every phrase has been said.
    """
    met = torch.zeros(len(words), dtype=torch.long, device=words.device)
    longest_begun = torch.zeros_like(met)
    next_words = []
    for phrase in wanted:
        size = len(phrase)
        complete = torch.zeros_like(met, dtype=torch.bool)
        if words.shape[1] >= size:
            complete = (words.unfold(1, size, 1) == phrase).all(-1).any(1)
        begun = torch.zeros_like(met)
        for length in range(1, min(size, words.shape[1] + 1)):
            begun = torch.where((words[:, -length:] == phrase[:length]).all(1), length, begun)
        met += complete * size
        longest_begun = torch.maximum(longest_begun, begun.masked_fill(complete, 0))
        next_words.append(phrase[begun])
    return met + longest_begun, torch.stack(next_words, 1)


def near_words(word: str, vocabulary: Vocabulary) -> str:
    """Up to three words of a vocabulary that are spelled like one it does not have, for an error to name."""
    return ", ".join(difflib.get_close_matches(word, vocabulary.words, n=3))


def _known_ids(words: Iterable[str], vocabulary: Vocabulary) -> list[int]:
    return [vocabulary.id(word) for word in words if word in vocabulary]


def _tensor(ids: list[int] | list[list[int]], device: torch.device) -> Tensor:
    return torch.tensor(ids, dtype=torch.long, device=device)


def _mask(ids: Tensor, size: int) -> Tensor:
    """(size,) True at the ids."""
    return torch.zeros(size, dtype=torch.bool, device=ids.device).index_fill_(0, ids, True)


def _contains(phrase: list[int], other: list[int]) -> bool:
    """Whether `other` is a run of words within `phrase`."""
    size = len(other)
    return any(phrase[i : i + size] == other for i in range(len(phrase) - size + 1))
