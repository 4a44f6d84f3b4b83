"""The captions of a recipe: photos by what they are for (train, val, test), the vocabulary, and the text corpus of R²M.

Section 3.2 of R²M: a sentence of the corpus is kept if it has 8 to 28 words (Treebank words, punctuation counts), at
most 15 % of them unknown, and at least one concept. 1 % of what is kept is held out: each text stage stops by its loss.

The authors' code replaces plurals of concept words by the singular throughout the captions. Here only the list of
concepts is in the singular, *two dogs* mentions *dog*; the sentence itself keeps its words, since it is what the model
learns to say, and it should not learn to say *two dog*.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from sightline.data import json_captions, text_lists
from sightline.data.concept_dictionary import ConceptDictionary
from sightline.data.convert import any_captions
from sightline.data.formats import identify
from sightline.data.image_list import with_splits
from sightline.data.photo_folder import photo_files
from sightline.data.records import CaptionedPhoto, CaptionSet
from sightline.errors import ConfigError, CountError, DataError, MissingRecordError, plural, some, times
from sightline.files import PathLike, existing_path
from sightline.metrics.novel import novel_objects
from sightline.scene import Concept, Scene
from sightline.text.vocabulary import Rule, Vocabulary, build_vocabulary
from sightline.training.data_config import DataConfig, Sentiment
from sightline.training.tensor_tables import Pool, SceneTable, TextTable

ROLES = ("train", "val", "test")


def read_photos(config: DataConfig, base: Path, notes: list[str]) -> dict[str, tuple[CaptionedPhoto, ...]]:
    """The photos of each role that has some. Without captions they are the photos of the folder."""
    images = None if config.images is None else existing_path(config.path(config.images, base))
    if config.caption_files:
        files = [read_captions(config.path(path, base), images) for path in config.caption_files]
        source = ", ".join(file.source for file in files)
        captions = CaptionSet(tuple(photo for file in files for photo in file), source)
    elif images is not None:
        captions = CaptionSet(tuple(CaptionedPhoto(file, (), file) for file in photo_files(images)), str(images))
    elif config.corpus is not None:
        return {}  # sentences alone
    else:
        raise ConfigError("there is nothing to train on", fix="give data.captions, data.images or data.corpus")
    sentences = sum(len(photo.sentences) for photo in captions)
    described = f" with {plural(sentences, 'caption')}" if sentences else ""
    notes.append(f"{captions.source} names {plural(len(captions), 'photo')}{described}.")
    if config.splits:
        captions = with_splits(captions, {name: config.path(path, base) for name, path in config.splits.items()})
    elif config.shares:
        captions = _shared(captions, config.shares)
    photos = _by_role(config, captions, notes)
    return _without_novel(photos, notes) if config.novel else photos


def read_captions(path: Path, images: Path | None = None) -> CaptionSet:
    """Captions to learn from, in any format; the photos of a table are in `images`, where that is given."""
    captions = any_captions(path, images=images)
    for photo in captions:
        for sentence in photo.sentences:
            if not sentence.text.strip():
                raise DataError(f"a caption of photo {photo.id} is empty", where=path, fix="write one, or remove it")
    return captions


def _shared(captions: CaptionSet, shares: dict[str, float]) -> CaptionSet:
    """Splits by a hash of the photos' names: a photo keeps its split when others are added.

    A split that would be empty gets the photo whose hash is nearest below its range.
    """
    if any(share <= 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-6:
        raise ConfigError(f"data.shares is {shares}", fix="give shares above 0 that sum to 1, such as {train: 0.9, …}")
    if len(captions) < len(shares):
        what = f"{plural(len(captions), 'photo')} cannot be shared by {len(shares)} splits"
        raise ConfigError(what, where=captions.source, fix="give more photos")
    place = {photo.id: hash_share(PurePosixPath(photo.file or photo.id).as_posix()) for photo in captions}
    split_of: dict[str, str] = {}
    start = 0.0
    for name, share in shares.items():
        split_of |= {id: name for id, value in place.items() if start <= value < start + share}
        start += share
    sizes = Counter(split_of.values())
    for name in shares:
        if not sizes[name]:
            largest = sizes.most_common(1)[0][0]
            split_of[max((id for id, split in split_of.items() if split == largest), key=place.__getitem__)] = name
            sizes = Counter(split_of.values())
    return CaptionSet(tuple(replace(p, split=split_of.get(p.id)) for p in captions), captions.source)


def hash_share(text: str) -> float:
    """A number from 0 to below 1 that depends on `text` alone."""
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / (1 << 48)


def _by_role(config: DataConfig, captions: CaptionSet, notes: list[str]) -> dict[str, tuple[CaptionedPhoto, ...]]:
    splits = captions.splits()
    if not splits:
        fix = "give data.splits (a list of photos each), or data.shares such as {train: 0.9, val: 0.05, test: 0.05}"
        raise ConfigError("no photo has a split", where=captions.source, fix=fix)
    role_of = {name: role for role in ROLES for name in getattr(config, role)}
    by_role: dict[str, list[CaptionedPhoto]] = {}
    for photo in captions:
        if photo.split in role_of:
            by_role.setdefault(role_of[photo.split], []).append(photo)
    wanted = config.train or config.val or config.test  # photos are trained on, or only measured by
    if not any(name in wanted for name in splits):
        fix = f"there are the splits {', '.join(splits)}"
        raise ConfigError(f"no photo is in {' or '.join(wanted)}", where=captions.source, fix=fix)
    used = [photo for part in by_role.values() for photo in part]
    bare = [photo.id for photo in used if not photo.sentences]
    if bare and len(bare) < len(used):  # either all photos have captions or none has
        what = f"{plural(len(bare), 'photo')} without a caption: {some(bare)}"
        raise MissingRecordError(what, where=captions.source, fix="caption them, or leave them out of the file")
    counts = ", ".join(f"{len(by_role[role]):,} {role}" for role in ROLES if role in by_role)
    unused = len(captions) - len(used)
    left = f"; {plural(unused, 'photo')} in no split that is used" if unused else ""
    notes.append(f"Splits: {counts}{left}.")
    return {role: tuple(by_role[role]) for role in ROLES if role in by_role}


def _without_novel(
    photos: dict[str, tuple[CaptionedPhoto, ...]], notes: list[str]
) -> dict[str, tuple[CaptionedPhoto, ...]]:
    """All photos but those of train that a caption describes with a novel object."""
    train = photos.get("train", ())
    kept = tuple(photo for photo in train if not any(novel_objects(caption.text) for caption in photo.sentences))
    if train and not kept:
        raise ConfigError("data.novel leaves no photo to train on", fix="give more captions, or remove it")
    notes.append(f"{plural(len(train) - len(kept), 'photo')} of train left out: a caption names a novel object.")
    return photos | ({"train": kept} if kept else {})


class Splitter:
    """A rule that remembers what it split: Treebank words take longer than everything else that reading does."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._known: dict[tuple[str, tuple[str, ...] | None], tuple[str, ...]] = {}

    def words(self, text: str, tokens: tuple[str, ...] | None = None) -> tuple[str, ...]:
        key = (text, tokens if self.rule.given_tokens else None)
        if key not in self._known:
            self._known[key] = tuple(self.rule.all_words(text, tokens))
        return self._known[key]

    def sentences(self, photo: CaptionedPhoto) -> list[tuple[str, ...]]:
        """The words of each caption of a photo; a caption of no words is an error."""
        split = [self.words(sentence.text, sentence.tokens) for sentence in photo.sentences]
        for sentence, words in zip(photo.sentences, split, strict=True):
            if not words:
                what = f"the caption {sentence.text[:40]!r} of photo {photo.id} has no word"
                raise DataError(what, fix="write one, or remove it")
        return split


def choose_vocabulary(
    source: Literal["rule", "train", "corpus"],
    splitter: Splitter,
    photos: Mapping[str, Sequence[CaptionedPhoto]],
    corpus: Sequence[str],
    always: Iterable[str],
    notes: list[str],
) -> Vocabulary:
    """The words that occur often enough where `source` says, then `always`."""
    rule = splitter.rule
    if source == "corpus":
        counted: Iterable[Sequence[str]] = (splitter.words(sentence) for sentence in corpus)
        where = "the corpus"
    else:
        roles = [role for role in photos if (role == "train" if source == "train" else rule.counts_split(role))]
        counted = (words for role in roles for photo in photos[role] for words in splitter.sentences(photo))
        where = ", ".join(roles)
    vocabulary = build_vocabulary(counted, rule.min_count, always)
    if not vocabulary.words:
        fix = "give more captions, or lower data.min_count"
        raise CountError(f"no word occurs {times(rule.min_count)} in {where}", fix=fix)
    notes.append(
        f"The vocabulary has {len(vocabulary.words):,} words: those that occur at least {times(rule.min_count)} in "
        f"{where} (rule {rule.name})."
    )
    return vocabulary


def read_corpus(path: PathLike, sentiment: Sentiment = "") -> tuple[str, ...]:
    """The sentences of a text file, a line each, or the captions of any format that holds some.

    `sentiment` chooses among those of SentiCap.
    """
    path = Path(path)
    kind = identify(path)
    if sentiment and kind.name != json_captions.SENTICAP.name:
        raise ConfigError(f"{kind.name} tells no sentiment", where=path, fix="give a SentiCap file, or no sentiment")
    if kind.name == text_lists.CORPUS.name:
        return tuple(text_lists.read_sentences(path))
    if kind.captions is None:
        raise ConfigError(f"{kind.name} holds no sentences", where=path, fix="give a text file, a sentence per line")
    sentences = kind.captions(path).sentences()
    return tuple(s.text for s in sentences if not sentiment or json_captions.sentiment_of(s) == sentiment)


def corpus_pools(
    config: DataConfig,
    corpus: Sequence[str],
    splitter: Splitter,
    vocabulary: Vocabulary,
    dictionary: ConceptDictionary | None,
    notes: list[str],
) -> dict[str, Pool]:
    """`corpus` and `corpus-val`: sentences of the right length and known enough, each with the concepts it mentions.

    A hash decides which sentences are held out, so that equal ones are on the same side.
    """
    shortest, longest = max(1, config.min_words), config.max_words or math.inf
    split = [(text, splitter.words(text)) for text in corpus]
    fitting = [(text, words) for text, words in split if shortest <= len(words) <= longest]
    unknown = [sum(word not in vocabulary for word in words) / len(words) for _, words in fitting]
    known = [pair for pair, share in zip(fitting, unknown, strict=True) if share <= config.unknown]
    concepts = [()] * len(known) if dictionary is None else dictionary.find_all([words for _, words in known])
    sides: dict[str, list[tuple[tuple[str, ...], Scene]]] = {"corpus": [], "corpus-val": []}  # words, what they mention
    for number, ((text, words), names) in enumerate(zip(known, concepts, strict=True)):
        if dictionary is None or names:
            scene = Scene(f"sentence {number}", concepts=tuple(map(Concept, names)))
            sides["corpus-val" if hash_share(text) < config.held_out else "corpus"].append((words, scene))
    used = sum(map(len, sides.values()))
    if used < 2:
        what = f"{used} of {plural(len(corpus), 'sentence')} of the corpus can be used, and 2 are needed"
        fix = "add text about things that the dictionary knows, lower data.min_words, or raise data.max_words"
        raise CountError(what, fix=fix)
    for side, other in (("corpus", "corpus-val"), ("corpus-val", "corpus")):
        if not sides[side]:
            sides[side].append(sides[other].pop())
    too_long = f" or more than {config.max_words}" if config.max_words else ""
    notes.append(
        f"Of {plural(len(corpus), 'sentence')} of the corpus {used:,} are used, {len(sides['corpus-val']):,} of them "
        f"to choose models by. Left out: {len(split) - len(fitting):,} of fewer than {config.min_words}{too_long} "
        f"words, {len(fitting) - len(known):,} with too many unknown words, {len(known) - used:,} that name nothing "
        "of the dictionary."
    )
    pools = {}
    for side, pairs in sides.items():
        sentences, scenes = zip(*pairs[: config.max_photos or None], strict=True)
        table = None if dictionary is None else SceneTable.build(scenes, ("concepts",), vocabulary)
        texts = TextTable.build(sentences, vocabulary, splitter.rule.max_words)
        ids = tuple(scene.id for scene in scenes)
        pools[side] = Pool(ids, table, texts, np.arange(len(ids) + 1, dtype=np.int64))
    return pools
