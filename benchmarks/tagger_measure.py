"""How well phrase heads of Flickr30k Entities are recognised as nouns, and function words and verbs are not."""

from __future__ import annotations

import tarfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from sightline.data.entities import EntitiesSentence, parse_sentence
from sightline.text.tagger import NOUNS, Tagger

# Last words of phrases that no tagger should call nouns.
PRONOUNS = frozenset(
    "i me you he him his she her hers it its we us they them their theirs himself herself itself themselves myself "
    "who whom which that this these those what there other another each both all some".split()
)
NUMBERS = frozenset("one two three four five six seven eight nine ten eleven twelve".split())
COLOURS = frozenset("black white red blue green yellow orange pink purple brown gray grey tan beige".split())
ADVERBS = frozenset("outside inside indoors outdoors behind above below underneath backwards headfirst".split())

# Words inside phrases that no tagger should call nouns.
DETERMINERS = frozenset("a an the this that these those some any each every another both all no".split())
PREPOSITIONS = frozenset(
    "of in on with at by for from to into onto near under over through behind between during against among beside "
    "toward towards along across around".split()
)
VERBS = frozenset("is are was were be been am has have had does did wearing holding carrying sitting wears".split())


@dataclass
class Measured:
    """Counts, and the errors with how often each was made."""

    heads: int = 0
    heads_as_nouns: int = 0
    function_words: int = 0
    function_words_as_nouns: int = 0
    missed: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def head_share(self) -> float:
        """The share of heads that came out as nouns."""
        return self.heads_as_nouns / self.heads

    @property
    def function_share(self) -> float:
        """The share of determiners, prepositions and verbs inside phrases that came out as nouns."""
        return self.function_words_as_nouns / self.function_words


def sentences(flickr8k: Path, split: str) -> list[EntitiesSentence]:
    """The Entities sentences of a split's photos; `flickr8k` is the folder of Flickr8k files."""
    listed = (flickr8k / f"Flickr_8k.{split}Images.txt").read_text("utf-8").split()
    wanted = {f"Sentences/{name.split('_')[0]}.txt" for name in listed}
    found = []
    with tarfile.open(flickr8k / "flickr30k_entities_8091.tar.gz") as tar:
        for member in tar:
            if member.name.removeprefix("./") in wanted:
                file = tar.extractfile(member)
                assert file is not None
                lines = file.read().decode("utf-8").splitlines()
                found += [parse_sentence(line, member.name) for line in lines if line.strip()]
    return found


def measure(tagger: Tagger, captions: list[EntitiesSentence], lower: bool = True) -> Measured:
    """Tag whole sentences, then look at the last word of each phrase and at the listed words inside phrases."""
    tokens = [[token.lower() for token in caption.tokens] if lower else list(caption.tokens) for caption in captions]
    measured = Measured()
    for caption, tags in zip(captions, tagger.tag_all(tokens), strict=True):
        for phrase in caption.phrases:
            words = [word.lower() for word in phrase.words]
            _count(measured, words, tags[phrase.first : phrase.first + len(words)])
    return measured


def _count(measured: Measured, words: list[str], tags: list[str]) -> None:
    head, tag = words[-1], tags[-1]
    excluded = head in PRONOUNS | NUMBERS | COLOURS | ADVERBS or any(character.isdigit() for character in head)
    if not excluded:
        measured.heads += 1
        measured.heads_as_nouns += tag in NOUNS
        if tag not in NOUNS:
            measured.missed[head, tag] += 1
    listed = [tag in NOUNS for word, tag in zip(words, tags, strict=True) if word in DETERMINERS | PREPOSITIONS | VERBS]
    measured.function_words += len(listed)
    measured.function_words_as_nouns += sum(listed)
