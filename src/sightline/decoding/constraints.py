"""`Rules` as tensors over a vocabulary's ids, and the runs of words in what was said so far that they ask about."""

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
            raise ConfigError(
                f"a model of {vocab_size} ids with a vocabulary of {len(vocabulary)}",
                fix="give the model's own vocabulary",
            )
        vocabulary = vocabulary or Vocabulary(())
        self.rules = rules
        self.vocabulary = vocabulary
        self.device = device
        unwanted = _ids(rules.must_not, vocabulary, known=False)
        wanted = _ids(rules.must_include, vocabulary, known=True)
        _check_wanted(rules, wanted, unwanted)
        self.wanted = [self._tensor(phrase) for phrase in wanted]
        self.wanted_words = sum(map(len, wanted))
        # By length, so that all phrases of one length are compared in one go: (phrases, words).
        longer = sorted((phrase for phrase in unwanted if len(phrase) > 1), key=len)
        self._unwanted = [self._tensor(list(phrases)) for _, phrases in itertools.groupby(longer, len)]
        unknown = [UNK] if rules.suppress_unk else []
        self._never = self._tensor([PAD, START, *unknown, *(phrase[0] for phrase in unwanted if len(phrase) == 1)])
        self._bad = self._tensor(_known(NEVER_LAST if rules.bad_endings else (), vocabulary))
        self._is_bad = torch.zeros(vocab_size, dtype=torch.bool, device=device).index_fill_(0, self._bad, True)
        said_again = {id for phrase in wanted for id in phrase}
        self._nouns = NounForms(vocabulary, said_again, device) if rules.no_repeat_noun else None

    def apply(self, log_probs: Tensor, said: Tensor) -> Penalties:
        """Write -inf over what may not follow, subtract what is to be avoided. Both in place.

        Args:
            log_probs: (N, V) of the next word.
            said: (N, 1 + t) START and the t words before it.
        """
        count = said.shape[1] - 1
        if count == self.rules.max_words:
            ending = log_probs[:, END].clone()
            log_probs.fill_(-torch.inf)
            log_probs[:, END] = ending
        log_probs.index_fill_(1, self._never, -torch.inf)
        if count < self.rules.min_words:
            log_probs[:, END] = -torch.inf
        if count == self.rules.max_words - 1:
            log_probs.index_fill_(1, self._bad, -torch.inf)  # the last word, after which END must follow
        forbidden = list(self._forbidden(said))
        if forbidden:
            log_probs.scatter_(1, torch.cat(forbidden, 1), -torch.inf)
        penalties = self._penalties(said)
        if penalties.words.shape[1]:
            log_probs.scatter_add_(1, penalties.words, -penalties.amounts)
        return penalties

    def _forbidden(self, said: Tensor) -> Iterable[Tensor]:
        """(N, m) ids that may not come next, some of them `_NOTHING`."""
        last = said[:, -1:]
        if len(self._bad):
            yield torch.where(self._is_bad[last], END, _NOTHING)
        if self.rules.no_repeat_word:
            yield last
        if self.rules.no_repeat_ngram:
            used, matches = follows(said[:, 1:], self.rules.no_repeat_ngram)
            yield torch.where(matches, used, _NOTHING)
        if self._nouns is not None:
            yield self._nouns.forbid(said)
        for phrases in self._unwanted:  # (p, length)
            length = phrases.shape[1]
            if said.shape[1] >= length:
                begun = (said[:, None, 1 - length :] == phrases[:, :-1]).all(2)  # (N, p)
                yield torch.where(begun, phrases[:, -1], _NOTHING)
        if self.wanted:
            met, _ = progress(said, self.wanted)
            yield torch.where(met < self.wanted_words, END, _NOTHING)[:, None]

    def _penalties(self, said: Tensor) -> Penalties:
        if not self.rules.repeat_penalty:
            return Penalties(said[:, :0], said[:, :0].float())
        used, matches = follows(said[:, 1:], 3)
        return Penalties(used, matches * self.rules.repeat_penalty)

    def _tensor(self, ids: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.device)


@dataclass(frozen=True, eq=False)
class Penalties:
    """What was subtracted: (N, m) ids and amounts, an id as often as it was used."""

    words: Tensor
    amounts: Tensor

    def of(self, chosen: Tensor) -> Tensor:
        """(N, k) what the chosen words (N, k) were charged."""
        return ((chosen.unsqueeze(2) == self.words.unsqueeze(1)) * self.amounts.unsqueeze(1)).sum(2)


class NounForms:
    """The nouns that hypotheses have said, in all their forms. Those of a word are looked up when it is first said.

    Args:
        vocabulary: of the model.
        free: ids that may come again.
        device: where hypotheses are.
    """

    MOST = 4  # forms of a noun in one vocabulary

    def __init__(self, vocabulary: Vocabulary, free: Collection[int], device: torch.device) -> None:
        self._vocabulary, self._free, self._seen = vocabulary, frozenset(free), {PAD, START, END, UNK}
        self._forms = torch.full((len(vocabulary), self.MOST), _NOTHING, dtype=torch.long, device=device)
        self._before_another, self._between = (
            torch.zeros(len(vocabulary), dtype=torch.bool, device=device).index_fill_(0, ids, True)
            for ids in (
                torch.tensor(_known(words, vocabulary), dtype=torch.long, device=device) for words in (ANOTHER, BETWEEN)
            )
        )

    def forbid(self, words: Tensor) -> Tensor:
        """(N, m) ids that may not come after START and words (N, 1 + t), some of them `_NOTHING`."""
        for id in set(words[:, -1].tolist()) - self._seen:
            self._look_up(id)
        forms = self._forms[words]  # (N, 1 + t, MOST)
        another = self._before_another[words[:, -2:]].any(1)
        forms = forms.masked_fill(another[:, None, None], _NOTHING)
        if words.shape[1] > 2:  # the noun before "by" may follow it
            forms[:, -2] = forms[:, -2].masked_fill(self._between[words[:, -1], None], _NOTHING)
        return forms.flatten(1)

    def _look_up(self, id: int) -> None:
        self._seen.add(id)
        forms = _known(noun_forms(self._vocabulary.word(id)), self._vocabulary)
        forms = [form for form in forms if form not in self._free][: self.MOST]
        if forms:
            self._forms[id, : len(forms)] = torch.tensor(forms, device=self._forms.device)


def _known(words: Iterable[str], vocabulary: Vocabulary) -> list[int]:
    return [vocabulary.id(word) for word in words if word in vocabulary]


def _ids(phrases: tuple[str, ...], vocabulary: Vocabulary, known: bool) -> list[list[int]]:
    """The phrases as ids. One with an unknown word is an error where it must be `known`, else can never be said."""
    found = []
    for phrase in phrases:
        words = [word if word in vocabulary else word.lower() for word in phrase.split()]
        unknown = [word for word in words if word not in vocabulary]
        if not unknown:
            found.append([vocabulary.id(word) for word in words])
        elif known:
            near = difflib.get_close_matches(unknown[0], vocabulary.words, n=3)
            hint = f"near words it knows: {', '.join(near)}" if near else "choose a word of its vocabulary"
            raise ConfigError(f"the model does not know the word {unknown[0]!r} of `must_include`", fix=hint)
    return found


def _check_wanted(rules: Rules, wanted: list[list[int]], unwanted: list[list[int]]) -> None:
    for phrase, text in zip(wanted, rules.must_include, strict=True):
        if any(contains(phrase, other) for other in unwanted):
            raise ConfigError(f"{text!r} is in `must_include`, and `must_not` forbids it", fix="remove one of them")
    words = sum(map(len, wanted))
    if words > rules.max_words:
        raise ConfigError(
            f"`must_include` has {words} words, and captions have at most {rules.max_words}",
            fix="raise max_words or ask for fewer words",
        )


def follows(said: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The words that would end an n-gram which (N, t) `said` already holds.

    Returns (N, t - n + 1) last words of its n-grams, and where the n - 1 words before are those said last.
    """
    if said.shape[1] < n:
        return said[:, :0], said[:, :0].bool()
    grams = said.unfold(1, n, 1)  # (N, t - n + 1, n)
    begins = said[:, said.shape[1] - n + 1 :]  # (N, n - 1)
    return grams[..., -1], (grams[..., :-1] == begins.unsqueeze(1)).all(-1)


def progress(said: Tensor, wanted: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """How far (M, t) hypotheses have come with the wanted phrases.

    Returns (M,) the words of phrases already said whole, plus those of the longest one begun; and (M, phrases) for each
    phrase the word that takes it on. The word that takes on the longest adds at least 1, so that hypotheses which never
    fall behind exist; the number of wanted words is reached only when every phrase has been said.
    """
    met = torch.zeros(len(said), dtype=torch.long, device=said.device)
    begun_most = torch.zeros_like(met)
    steps = []
    for phrase in wanted:
        size = len(phrase)
        if said.shape[1] >= size:
            whole = (said.unfold(1, size, 1) == phrase).all(-1).any(1)
        else:
            whole = torch.zeros_like(met, dtype=torch.bool)
        begun = torch.zeros_like(met)
        for length in range(1, min(size, said.shape[1] + 1)):
            begun = torch.where((said[:, -length:] == phrase[:length]).all(1), length, begun)
        met += whole * size
        begun_most = torch.maximum(begun_most, begun.masked_fill(whole, 0))
        steps.append(phrase[begun])
    return met + begun_most, torch.stack(steps, 1)


def contains(phrase: Sequence[int], other: Sequence[int]) -> bool:
    """Whether `other` is a run of words within `phrase`."""
    size = len(other)
    return any(list(phrase[i : i + size]) == list(other) for i in range(len(phrase) - size + 1))
