"""Make the part-of-speech tagger's weights, `src/sightline/text/assets/tagger.npz`, and `TAGGER-LICENSE` beside them.

The weights start from those of the PyPI package `textblob-aptagger` 0.2.0 (MIT, Copyright 2013 Matthew Honnibal), an
averaged perceptron its author trained on sections 00-18 of the Wall Street Journal part of OntoNotes 5 (his words, on
NLTK's copy: https://github.com/nltk/nltk/issues/1783). They are then adapted, by three more rounds of averaged
perceptron training, to text that is closer to captions and mostly lower-cased:

- captions of COCO's 2014 training images (CC BY 4.0), with tags the original weights give them under the constraints
  and corrections of `caption_labels`; words whose tag is in doubt are not learned from;
- definitions and examples of WordNet 3.0 (its own licence), tagged by the original weights among the tags WordNet
  allows each word, so that general and cased text is not forgotten;
- `tagger_captions.txt`, corrected by hand: COCO training captions the tagger was unsure of, and captions written for
  this purpose.

Nothing of Flickr8k or Flickr30k is used. Fetch the sources and run (about ten minutes, 1.5 GB of memory):

    pip download --no-deps --no-binary :all: -d /tmp textblob-aptagger==0.2.0
    apt-get download wordnet-base && dpkg -x wordnet-base*.deb /tmp/wn
    python tools/build_tagger.py /tmp/textblob-aptagger-0.2.0.tar.gz captions_train2014.json /tmp/wn/usr/share/wordnet
"""

from __future__ import annotations

import argparse
import pickle
import random
import re
import tarfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from caption_labels import allowed, possible, settle, variations

from sightline.files import atomic_write, read_json, write_text
from sightline.text.tagger import (
    AFTER,
    BEFORE,
    CLAUSES,
    OFFSETS,
    RESTARTS,
    clause_after,
    closed_classes,
    features,
    form,
    word_class,
)

Floats = npt.NDArray[np.float32]
Sentence = tuple[list[str], list[str | None]]  # tokens, and the tags to learn

ASSET = Path(__file__).parents[1] / "src" / "sightline" / "text" / "assets" / "tagger.npz"
LICENCE = "textblob-aptagger-0.2.0/LICENSE"
PICKLE = "textblob-aptagger-0.2.0/textblob_aptagger/trontagger-0.1.0.pickle"
CAPTIONS, GLOSSES, ROUNDS, SEED = 40_000, 30_000, 3, 1
UNIT, LEAST = 0.5, 1.0  # one unit of a stored weight; smaller weights than LEAST are dropped
TOKEN = re.compile(
    r"[A-Za-z]+(?:-[A-Za-z]+)*(?=n't)|n't|'(?:s|re|ve|ll|d|m)\b|[A-Za-z0-9]+(?:[-/.][A-Za-z0-9]+)*"
    r"|``|''|--|\.\.\.|[^\sA-Za-z0-9]"
)
# How the package names features, and our names for them
TEMPLATES = {
    "i word": "w=", "i suffix": "s=", "i pref1": "p=", "i-1 word": "-1w=", "i-1 suffix": "-1s=", "i-2 word": "-2w=",
    "i+1 word": "+1w=", "i+1 suffix": "+1s=", "i+2 word": "+2w=", "i-1 tag": "t1=", "i-2 tag": "t2=",
    "i tag+i-2 tag": "t12=", "i-1 tag+i word": "t1w=",
}  # fmt: skip
BOUNDARIES = {"-START-": BEFORE[1], "-START2-": BEFORE[0], "-END-": AFTER[0], "-END2-": AFTER[1]}


class PlainUnpickler(pickle.Unpickler):
    """Reads containers, strings and numbers, and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> type:
        """The only class the weights need is `set`."""
        if (module, name) == ("__builtin__", "set"):
            return set
        raise pickle.UnpicklingError(f"{module}.{name} is not expected in the weights")


def read_package(archive: Path) -> tuple[dict[str, dict[str, float]], dict[str, str], list[str]]:
    """The package's weights by feature (our names) and tag, its table of words with one tag, and its tags."""
    with tarfile.open(archive) as tar:
        file: IO[bytes] | None = tar.extractfile(PICKLE)
        assert file is not None
        weights, one_tag, tags = PlainUnpickler(file, encoding="latin1").load()
    return {_our_name(name): row for name, row in weights.items()}, one_tag, sorted(tags)


def licence(archive: Path) -> str:
    """The package's licence, which must go with the weights."""
    with tarfile.open(archive) as tar:
        file: IO[bytes] | None = tar.extractfile(LICENCE)
        assert file is not None
        return file.read().decode("utf-8").strip() + "\n"


def _our_name(name: str) -> str:
    if name == "bias":
        return name
    words = name.split(" ")
    size = 3 if "+i" in name.split(" ", 2)[1] else 2
    values = [BOUNDARIES.get(value, value) for value in words[size:]]
    return TEMPLATES[" ".join(words[:size])] + " ".join(values)


class Perceptron:
    """Weights by feature and tag, with the running sums that averaging needs."""

    def __init__(self, tags: list[str]) -> None:
        self.tags = tags
        self.number = {tag: i for i, tag in enumerate(tags)}
        self.row: dict[str, int] = {}
        self.weights = np.zeros((1 << 20, len(tags)), dtype=np.float32)
        self.steps_times_change = np.zeros((1 << 20, len(tags)), dtype=np.float64)
        self.steps = 1
        self._of_type: dict[tuple[str, int], list[int]] = {}

    def id(self, name: str) -> int:
        """The row of a feature."""
        return self.row.setdefault(name, len(self.row))

    def static(self, tokens: list[str]) -> list[list[int]]:
        """For each token the features that do not depend on tags."""
        padded = [*BEFORE, *tokens, *AFTER]
        rows = []
        for i in range(2, len(tokens) + 2):
            here = [row for offset in OFFSETS for row in self._type(padded[i + offset], offset)]
            rows.append([*here, self.id(f"cc={word_class(padded[i])} {word_class(padded[i + 1])}")])
        return rows

    def _type(self, token: str, offset: int) -> list[int]:
        key = token, offset
        if key not in self._of_type:
            self._of_type[key] = [self.id(name) for name in features(token, offset)]
        return self._of_type[key]

    def dynamic(self, token: str, two: str, one: str, clause: str) -> list[int]:
        """The features that depend on the tags before."""
        kind = word_class(token)
        names = f"t1={one}", f"t2={two}", f"t12={one} {two}", f"t1w={one} {form(token)}", f"t1c={one} {kind}"
        return [self.id(name) for name in (*names, f"uc={clause} {kind}")]

    def learn(self, sentence: Sentence) -> int:
        """One pass over a sentence; returns how many tags were wrong."""
        tokens, gold = sentence
        two, one, clause, wrong = *BEFORE, CLAUSES[0], 0
        for token, static, right in zip(tokens, self.static(tokens), gold, strict=True):
            rows = static + self.dynamic(token, two, one, clause)
            guess = int(self.weights[rows].sum(axis=0).argmax())
            if right is not None and guess != self.number[right]:
                wrong += 1
                for column, change in ((self.number[right], 1), (guess, -1)):
                    self.weights[rows, column] += change
                    self.steps_times_change[rows, column] += change * self.steps
            self.steps += 1
            tag = self.tags[guess] if right is None else right
            two, one, clause = one, tag, clause_after(clause, tag, form(token) in RESTARTS)
        return wrong

    def average(self) -> Floats:
        """The mean of the weights over all steps."""
        rows = len(self.row)
        return np.asarray(self.weights[:rows] - self.steps_times_change[:rows] / self.steps, dtype=np.float32)


class Original:
    """The package's own tagger, limited to the tags a word may have."""

    def __init__(self, weights: dict[str, dict[str, float]], one_tag: dict[str, str], tags: list[str]) -> None:
        self.weights, self.one_tag, self.tags = weights, one_tag, tags
        self._rows: dict[str, Floats] = {}

    def tag(self, tokens: list[str], limit: bool = True) -> list[str]:
        """Tags for tokens; `limit`: only `possible` ones (else any of `allowed`, and NNP for capitalised words)."""
        padded = [*BEFORE, *tokens, *AFTER]
        two, one = BEFORE
        found = []
        for i, token in enumerate(tokens, start=2):
            word = _as_package(token)
            names = [
                *(f"{offset:+d}w={_as_package(padded[i + offset])}" for offset in OFFSETS[1:]), "bias", f"w={word}",
                f"s={token[-3:]}", f"p={token[:1]}", f"-1s={_as_package(padded[i - 1])[-3:]}",
                f"+1s={_as_package(padded[i + 1])[-3:]}", f"t1={one}", f"t2={two}", f"t12={one} {two}",
                f"t1w={one} {word}",
            ]  # fmt: skip
            score = sum((self._row(name) for name in names if name in self.weights), start=np.zeros(len(self.tags)))
            if token in self.one_tag:
                score[self.tags.index(self.one_tag[token])] += 15
            score += self._limits(token, limit)
            two, one = one, self.tags[int(score.argmax())]
            found.append(one)
        return found

    def _row(self, name: str) -> Floats:
        if name not in self._rows:
            self._rows[name] = np.array([self.weights[name].get(tag, 0.0) for tag in self.tags], dtype=np.float32)
        return self._rows[name]

    @cache  # noqa: B019 - one instance, for one run
    def _limits(self, token: str, limit: bool) -> Floats:
        word = token.lower()
        options = set(possible(word) if limit else allowed(word))
        if options and not limit and token[0].isupper() and word not in closed_classes():
            options |= {"NNP", "NNPS"} if word.endswith("s") else {"NNP"}
        none = not options
        return np.array([0.0 if none or tag in options else -1e9 for tag in self.tags], dtype=np.float32)


def _as_package(token: str) -> str:
    return "!HYPHEN" if "-" in token[1:] else form(token)


def captions(path: Path) -> list[list[str]]:
    """Some of COCO's captions, as tokens."""
    texts = sorted({annotation["caption"] for annotation in read_json(path)["annotations"]})
    random.Random(SEED).shuffle(texts)
    return [TOKEN.findall(text) for text in texts[:CAPTIONS]]


def glosses(folder: Path) -> list[list[str]]:
    """Some of WordNet's definitions and examples, as tokens."""
    found = []
    for name in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{name}").read_text("utf-8").splitlines():
            _, _, gloss = line.partition("| ")
            found += [*re.findall(r'"([^"]+)"', gloss), re.sub(r'"[^"]*"', "", gloss).strip(" ;")]
    sentences = [tokens for tokens in map(TOKEN.findall, found) if 2 < len(tokens) < 40]
    random.Random(SEED).shuffle(sentences)
    return sentences[:GLOSSES]


def by_hand() -> list[tuple[list[str], list[str]]]:
    """The captions tagged by hand."""
    lines = (Path(__file__).parent / "tagger_captions.txt").read_text("utf-8").splitlines()
    pairs = [[pair.rsplit("_", 1) for pair in line.split()] for line in lines]
    return [([word for word, _ in line], [tag for _, tag in line]) for line in pairs]


def training_set(original: Original, texts: list[list[str]], definitions: list[list[str]]) -> Iterator[Sentence]:
    """Everything to learn from: each caption and definition as it is and lower-cased, the hand-tagged ones oftener."""
    lower = ([token.lower() for token in tokens] for tokens in texts)
    settled = [settle(words, original.tag(words)) for words in lower]
    for tokens, (words, tags, sure) in zip(texts, settled, strict=True):
        gold = [tag if trusted else None for tag, trusted in zip(tags, sure, strict=True)]
        yield tokens, as_names(tokens, gold)
        yield without_punctuation(words, gold) if len(words) % 2 else (words, gold)
    yield from (
        without_punctuation(words, [tag if trusted else None for tag, trusted in zip(tags, sure, strict=True)])
        for words, tags, sure in variations(settled, SEED)
    )
    for tokens in definitions:
        gold = list(original.tag(tokens, limit=False))
        yield tokens, gold
        yield [token.lower() for token in tokens], gold
    for words, tags in by_hand():
        for _ in range(2):
            yield words, list(tags)
            yield without_punctuation(words, list(tags))
            yield [words[0].capitalize(), *words[1:]], list(tags)


def as_names(tokens: list[str], tags: list[str | None]) -> list[str | None]:
    """The tags of a caption as it was written: a capital inside makes a name of a noun, and leaves others open."""
    names = {"NN": "NNP", "NNP": "NNP"}
    inside = [i > 0 and token[0].isupper() for i, token in enumerate(tokens)]
    if sum(inside) > 3:  # a title
        return [None if capital else tag for tag, capital in zip(tags, inside, strict=True)]
    return [names.get(tag or "") if capital else tag for tag, capital in zip(tags, inside, strict=True)]


def without_punctuation(words: list[str], tags: Iterable[str | None]) -> Sentence:
    """As the tokenizer of the metrics leaves a caption."""
    kept = [(word, tag) for word, tag in zip(words, tags, strict=True) if word not in (".", ",", ":", ";", "!", "?")]
    return [word for word, _ in kept], [tag for _, tag in kept]


def train(original: Original, sentences: list[Sentence]) -> Perceptron:
    """The original weights, trained further."""
    model = Perceptron(original.tags)
    for name, row in original.weights.items():
        for tag, weight in row.items():
            model.weights[model.id(name), model.number[tag]] = weight
    for word, tag in original.one_tag.items():  # the package never weighs these; it looks them up
        if word.islower() or word.lower() not in original.one_tag:
            model.weights[model.id(f"w={form(word)}"), model.number[tag]] += 10
    chance = random.Random(SEED)
    total = sum(len(tokens) for tokens, _ in sentences)
    for number in range(ROUNDS):
        chance.shuffle(sentences)
        wrong = sum(model.learn(sentence) for sentence in sentences)
        print(f"round {number + 1}: {wrong / total:.2%} of {total:,} tokens wrong, {len(model.row):,} features")
    return model


def compact(model: Perceptron) -> dict[str, npt.NDArray[Any]]:
    """The arrays `sightline.text.tagger.Tagger` takes: averaged weights in whole units, small ones dropped."""
    average = model.average()
    average[np.abs(average) < LEAST] = 0
    units = np.clip(np.rint(average / UNIT), -127, 127).astype(np.int8)
    kept = {name: units[row] for name, row in model.row.items() if units[row].any()}
    marks = [*model.tags, *BEFORE]
    size, number = len(model.tags), {mark: i for i, mark in enumerate(marks)}
    keyed = {prefix: _under(kept, prefix) for prefix in ("t1=", "t2=", "t12=", "t1w=", "t1c=", "uc=", "cc=")}
    pairs = {tuple(key.rsplit(" ", 1)): row for key, row in keyed["cc="].items()}
    used = {kind for pair in pairs for kind in pair} | {k.split(" ", 1)[1] for k in keyed["t1c="]}
    classes = ["<none>", *sorted(used | {key.rsplit(" ", 1)[1] for key in keyed["uc="]})]
    place = {kind: i for i, kind in enumerate(classes)}
    history = np.zeros((size + 2, size + 2, size), dtype=np.int16)
    class_history = np.zeros((len(classes), size + 2, size), dtype=np.int8)
    class_clause = np.zeros((len(classes), len(CLAUSES), size), dtype=np.int8)
    pair_rows = np.zeros((len(classes), len(classes)), dtype=np.int16)
    for one, row in keyed["t1="].items():
        history[:, number[one]] += row
    for two, row in keyed["t2="].items():
        history[number[two]] += row
    for key, row in keyed["t12="].items():
        one, two = key.split(" ")
        history[number[two], number[one]] += row
    for key, row in keyed["t1c="].items():
        one, kind = key.split(" ")
        class_history[place[kind], number[one]] = row
    for key, row in keyed["uc="].items():
        clause, kind = key.rsplit(" ", 1)
        class_clause[place[kind], CLAUSES.index(clause)] = row
    for i, (first, second) in enumerate(pairs, start=1):
        pair_rows[place[first], place[second]] = i
    words = sorted((key.split(" ", 1)[::-1] for key in keyed["t1w="]), key=lambda pair: (pair[0], number[pair[1]]))
    lexical = sorted(name for name in kept if not name.startswith(tuple(keyed)))
    zero = np.zeros((1, size), dtype=np.int8)
    return {
        "tags": _text(model.tags),
        "names": _text(lexical),
        "lexical": np.stack([kept[name] for name in lexical]),
        "history": history,
        "classes": _text(classes),
        "class_history": class_history,
        "class_clause": class_clause,
        "pair_rows": pair_rows,
        "pairs": np.concatenate([zero, np.stack(list(pairs.values()))]),
        "history_words": _text([word for word, _ in words]),
        "history_tags": np.array([number[tag] for _, tag in words], dtype=np.uint8),
        "word_history": np.concatenate([zero, np.stack([keyed["t1w="][f"{tag} {word}"] for word, tag in words])]),
    }


def _under(rows: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): row for name, row in rows.items() if name.startswith(prefix)}


def _text(lines: list[str]) -> npt.NDArray[np.uint8]:
    return np.frombuffer("\n".join(lines).encode("utf-8"), dtype=np.uint8)


def main() -> None:
    """Read the three sources named on the command line, train, and write the asset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="textblob-aptagger-0.2.0.tar.gz")
    parser.add_argument("captions", type=Path, help="COCO's captions_train2014.json, or the same gzipped")
    parser.add_argument("wordnet", type=Path, help="folder with data.noun, data.verb, data.adj, data.adv")
    parser.add_argument("--out", type=Path, default=ASSET)
    options = parser.parse_args()
    original = Original(*read_package(options.package))
    sentences = list(training_set(original, captions(options.captions), glosses(options.wordnet)))
    arrays = compact(train(original, sentences))
    with atomic_write(options.out) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type,unused-ignore]
    write_text(options.out.parent / "TAGGER-LICENSE", licence(options.package))
    print(f"{options.out}: {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
