"""What a caption may and must say, and those rules as tensors over a vocabulary's ids."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.decoding.phrases import contains, follows, progress
from sightline.errors import ConfigError
from sightline.text.endings import NEVER_LAST
from sightline.text.repeats import ANOTHER, BETWEEN, noun_forms
from sightline.text.vocabulary import END, PAD, START, UNK, Vocabulary

SELF_CRITICAL_REPEAT = 2 * 0.693  # what self-critical code subtracts for a trigram used before

_NOTHING = PAD  # it is never said, so to forbid it once more changes nothing


@dataclass(frozen=True)
class Rules:
    """What captions may and must say.

    Words and phrases are surface text. A word forbidden by a rule gets no probability, and the others keep theirs: the
    score of a caption stays the model's own log-probability. A caption that reaches `max_words` ends there, and END's
    log-probability is counted as in any other, so that long and short captions compare.
    """

    max_words: int = 20
    """The most words a caption has, END not counted."""
    min_words: int = 0
    """The fewest."""
    suppress_unk: bool = True
    """Never say the unknown word."""
    no_repeat_ngram: int = 0
    """No run of that many words comes twice; 0 allows all."""
    repeat_penalty: float = 0.0
    """Subtracted from a word for each earlier use of the trigram it would end (self-critical: 2 · 0.693)."""
    no_repeat_word: bool = False
    """No word comes twice in a row."""
    no_repeat_noun: bool = False
    """No noun comes twice, in either number, but after *another* or *other*, and in *side by side*
    (`sightline.text.repeats`). What must be included may come again."""
    bad_endings: bool = False
    """No caption ends in an article, preposition or the like (`sightline.text.endings`)."""
    right_articles: bool = False
    """*a* and *an* suit the words after them: they are set right once the words are found."""
    whole: bool = False
    """No caption is cut: the model ends it, or, where it does not within `max_words`, it stops after a whole phrase,
    rather a longer one (`sightline.decoding.sentence_end`). Needs a beam."""
    must_include: tuple[str, ...] = ()
    """Words and phrases that every caption has; needs a beam."""
    must_not: tuple[str, ...] = ()
    """Words and phrases that no caption has."""

    def __post_init__(self) -> None:
        if self.max_words < 1:
            raise ConfigError(f"`max_words` is {self.max_words}", fix="give 1 or more")
        if not 0 <= self.min_words <= self.max_words:
            raise ConfigError(f"`min_words` is {self.min_words}", fix=f"give 0 to max_words, {self.max_words}")
        for name in ("no_repeat_ngram", "repeat_penalty"):
            if getattr(self, name) < 0:
                raise ConfigError(f"`{name}` is {getattr(self, name)}", fix="give 0 (off) or more")
        for name in ("must_include", "must_not"):
            phrases = getattr(self, name)
            if isinstance(phrases, str) or not all(phrase.split() for phrase in phrases):
                raise ConfigError(f"`{name}` is {phrases!r}", fix="give a list of words or phrases, none empty")

    @property
    def name_words(self) -> bool:
        """Whether some rule can be read only with a vocabulary."""
        named = self.must_include or self.must_not
        return bool(named or self.no_repeat_noun or self.bad_endings or self.right_articles or self.whole)


# What the captions keep to that people read, where nothing else is asked for.
CAREFUL = Rules(no_repeat_word=True, no_repeat_noun=True, bad_endings=True, right_articles=True)


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
        self._unwanted = [self._tensor(phrase) for phrase in unwanted if len(phrase) > 1]
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
            yield self._nouns.said(said)
        for phrase in self._unwanted:
            if said.shape[1] >= len(phrase):
                begun = (said[:, 1 - len(phrase) :] == phrase[:-1]).all(1, keepdim=True)
                yield torch.where(begun, phrase[-1], _NOTHING)
        if self.wanted:
            met, _ = progress(said, self.wanted)
            yield torch.where(met < self.wanted_words, END, _NOTHING)[:, None]

    def _penalties(self, said: Tensor) -> Penalties:
        if not self.rules.repeat_penalty:
            return Penalties(said[:, :0], said[:, :0].float())
        used, matches = follows(said[:, 1:], 3)
        return Penalties(used, matches * self.rules.repeat_penalty)

    def _tensor(self, ids: list[int]) -> Tensor:
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

    def said(self, words: Tensor) -> Tensor:
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
