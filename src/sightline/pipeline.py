"""What people call: a model loaded once, and photos in, captions with boxes out.

pipeline = sightline.load()
caption = pipeline.caption("photo.jpg")
print(caption, caption.confidence, caption.to_json()["words"])
pipeline.index("photos")
pipeline.search("a dog on a beach")

One photo or many, from Python, the command line, a job or the server, all go the same way:

    read ─► see (`scenes`) ─► decode ─► choose the caption that fits the photo ─► trace ─► boxes, confidence
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, overload

import numpy as np
import torch

from sightline.batch import SceneBatch, TextBatch
from sightline.caption import Caption, PhotoCaption
from sightline.checkpoint.bundle import Bundle, load_bundle
from sightline.checkpoint.checkpoint_file import kind_of_file
from sightline.checkpoint.model_checkpoint import load as load_checkpoint
from sightline.decoding.copy_names import CopyName, has_places, rules_with_stand_ins, split_rules, turns, write_names
from sightline.decoding.decode import decode, trace_captions
from sightline.decoding.decode_result import DecodeResult
from sightline.decoding.rules import CAREFUL, Rules, rules_of
from sightline.decoding.strategies import Beam, Greedy
from sightline.devices import choose_device, one_thread, set_threads
from sightline.errors import CheckpointError, ConfigError, CountError, SightlineError
from sightline.files import PathLike, model_file
from sightline.grounding.box_chooser import choose_boxes
from sightline.grounding.calibration import Calibration, SupportModel, features
from sightline.grounding.choice import Candidate, CaptionChooser, Choice, EncodedPhotos, signs_of
from sightline.grounding.evidence import Audit, Grounding
from sightline.grounding.noun_scores import Grounder
from sightline.jobs.job import run_locally
from sightline.jobs.job_photos import PhotoRef
from sightline.models.captioner import Memory
from sightline.models.end_to_end import EndToEnd, PooledCaptioner, Reader
from sightline.models.int8_linear import with_int8
from sightline.models.matcher import Embedding, GlobalMatcher, Matcher
from sightline.models.r2m import R2M
from sightline.photo import Photo, PhotoEmbedding, Pixels
from sightline.scene import Array, Concept
from sightline.text.vocabulary import rule
from sightline.vision.encoder import scenes_fingerprint
from sightline.vision.find_photos import is_picture
from sightline.vision.fold_batch_norm import fold_int8
from sightline.vision.images import Source, read_pixels
from sightline.vision.photo_reader import Progress, left_out
from sightline.vision.plain_photos import plain_photo

if TYPE_CHECKING:  # what only some verbs need is imported by them: a caption is to start fast
    from sightline.distinct_captions import Contrast
    from sightline.search.query import Hit
    from sightline.search.sync import Kind, SyncReport

Length = Literal["short", "normal", "long"] | int  # of captions; a number is the most words
P = TypeVar("P", bound=Source | Photo)
BATCH = 8  # photos that are looked at together
BATCH_ON_GPU = 64  # the same, to index them on an accelerator
# So few photos are a thousand small products, each of which one thread has done before another is awake: on two cores
# one photo takes 51 ms with one thread and 65 with two. Jobs give several photos to as many threads as there are.
FEW_PHOTOS = 2
GRID_POOLS = (1, 2)  # sides of the squares of grid cells that features are means of: of `extract`, and of `train`
SILENT = "the model says nothing about it; train it for longer"  # of one that ends captions before they begin
BEAM = 5  # hypotheses that are followed at once: captions of 3 are worse, those of 8 no better
WIDE_BEAM = 10  # hypotheses, at least, where captions have little room: whole sentences are rare among the first few


class ChosenCaption(NamedTuple):
    """The caption that was chosen for a photo."""

    caption: Caption  # its nouns point at boxes
    features: tuple[float, ...]  # what its confidence is made from (`sightline.grounding.calibration`)
    concepts: tuple[Concept, ...]  # of the photo


def load(
    path: PathLike | None = None, device: str = "auto", threads: int | None = None, *, style: PathLike | None = None
) -> Pipeline:
    """Load the model that comes with Sightline, or that of a file, ready for photos. Nothing is downloaded.

    That takes a second: keep the pipeline, and give it photo after photo.

    Args:
        path: a model file, or the folder of a run of `sightline train`; by default the model of the package.
        device: auto, cpu, cuda, cuda:1 or mps; auto takes an accelerator where there is one.
        threads: that a CPU computes with, in this whole process; by default as many as PyTorch chooses.
        style: an R²M model trained on your own text, or the folder of its run, whose words are used.

    >>> import sightline
    >>> pipeline = sightline.load()
    >>> caption = pipeline.caption("photos/cat.jpg")
    >>> 0 <= caption.confidence <= 1, str(caption) == " ".join(caption.words)
    (True, True)
    """
    if threads is not None:
        set_threads(threads)
    place = choose_device(device)
    bundle = load_model(path, place)
    if style is not None:
        from sightline.checkpoint.style_captions import with_style

        bundle = with_style(bundle, style, place)
    return Pipeline(bundle, place)


class Pipeline:
    """A model at work, as `sightline.load` gives it: photos in; captions, boxes, audits and search results out.

    Photos are paths, bytes of files, Pillow images, arrays (`sightline.vision.images`), or `Photo`s that were read.
    What comes out has `to_json`, and other libraries' forms by `sightline.export.interchange`.
    """

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        self.bundle, self.device = bundle, torch.device(device)
        self.size = bundle.vision.size
        self._vision = fold_int8(bundle.vision)
        self._fingerprint = bundle.vision.fingerprint()
        model = bundle.captioner.model
        self.captioner = with_int8(model) if self.device.type == "cpu" else model
        self.auditing = bundle.auditing
        self._grounder = Grounder(bundle, self._vision, self.captioner, self.auditing)
        self._chooser = CaptionChooser(self._grounder, bundle.choice, bundle.fit)

    def read(self, photo: Source | Photo) -> Photo:
        """Read a photo. A `Photo` is returned as it is."""
        if isinstance(photo, Photo):
            return photo
        path = os.fspath(photo) if isinstance(photo, str | os.PathLike) else ""
        return Photo(path, path, *read_pixels(photo, self.size))

    def scenes(self, photos: Sequence[Photo]) -> SceneBatch:
        """What the vision model sees in photos."""
        pixels = torch.from_numpy(np.stack([photo.pixels for photo in photos])).permute(0, 3, 1, 2).to(self.device)
        with self._threads_for(len(photos)):
            return self._vision.scenes(pixels, tuple(photo.id for photo in photos), self._fingerprint)

    def _threads_for(self, photos: int) -> AbstractContextManager[None]:
        """Within it, a CPU computes with one thread if photos are few (`FEW_PHOTOS`)."""
        return one_thread(self.device.type == "cpu" and photos <= FEW_PHOTOS)

    @overload
    def caption(
        self,
        photos: list[P] | tuple[P, ...],
        *,
        length: Length = "normal",
        beam: int = BEAM,
        rules: Rules | None = None,
    ) -> list[PhotoCaption]: ...
    @overload
    def caption(
        self, photos: Source | Photo, *, length: Length = "normal", beam: int = BEAM, rules: Rules | None = None
    ) -> PhotoCaption: ...
    def caption(
        self,
        photos: P | list[P] | tuple[P, ...],
        *,
        length: Length = "normal",
        beam: int = BEAM,
        rules: Rules | None = None,
    ) -> PhotoCaption | list[PhotoCaption]:
        """The caption of one photo, or those of a list in its order.

        Args:
            photos: one, or a list or tuple of them. The first that cannot be read is an error.
            length: short, normal, long, or the most words, from 5 to 40.
            beam: hypotheses that are followed at once; 1 takes the most probable word at each step.
            rules: what captions may and must say, instead of a length; by default `CAREFUL`
                (`sightline.decoding.rules`).

        >>> caption = pipeline.caption("photos/cat.jpg", length="short")
        >>> len(caption.words) <= 7, 0 <= caption.confidence <= 1
        (True, True)
        >>> [caption.path for caption in pipeline.caption(["photos/cat.jpg", "photos/coffee.jpg"])]
        ['photos/cat.jpg', 'photos/coffee.jpg']
        """
        rules = _rules(length, rules)
        if not isinstance(photos, list | tuple):
            return self.caption_photos([self.read(photos)], beam, rules)[0]
        captions: list[PhotoCaption] = []
        for group in groups(map(self.read, photos), BATCH):
            captions += self.caption_photos(group, beam, rules)
        return captions

    def caption_many(
        self,
        paths: Iterable[PathLike],
        *,
        batch: int = BATCH,
        length: Length = "normal",
        beam: int = BEAM,
        rules: Rules | None = None,
        bad: Callable[[SightlineError], None] | None = None,
        progress: Progress = iter,
    ) -> Iterator[PhotoCaption]:
        """Yield the captions of the photos at `paths`, in their order; files are read while the model works.

        Length, beam and rules are those of `caption`.

        Args:
            paths: of photos; `sightline.vision.find_photos.find_photos` lists those of folders and patterns.
            batch: photos that are looked at together.
            bad: is given the error of a file that cannot be read, which stops nothing. By default one warning at
                the end lists them all.
            progress: wraps the paths, such as `sightline.vision.photo_reader.progress_bar("captioning")`.
        """
        if batch < 1:
            raise ConfigError(f"`batch` is {batch}", fix="give 1 or more")
        errors: list[SightlineError] = []
        refs = [PhotoRef(os.fspath(path), path) for path in paths]
        work = partial(self.caption_photos, beam=beam, rules=_rules(length, rules))
        device = self.device.type
        run = run_locally(refs, work, size=self.size, batch=batch, progress=progress, device=device, loaded=True)
        for result in run:
            for _, error in result.bad:
                (bad or errors.append)(error)
            yield from (caption for _, caption in result.made)
        if errors:
            warnings.warn(left_out(errors), stacklevel=2)

    @torch.inference_mode()
    def caption_photos(
        self,
        photos: Sequence[Photo],
        beam: int = BEAM,
        rules: Rules | None = None,
        scenes: SceneBatch | None = None,  # of the photos, where they were looked at
        images: Embedding | None = None,  # what the matcher makes of them, where that is known
    ) -> list[PhotoCaption]:
        """The captions of photos that were read, looked at together; beam and rules are those of `caption`."""
        captions, scenes = [], self.scenes(photos) if scenes is None else scenes
        with self._threads_for(len(photos)):
            choices = self.choose_captions(scenes, beam, rules, images, [photo.pixels for photo in photos])
        for photo, (caption, signs, concepts) in zip(photos, choices, strict=True):
            path = os.fspath(photo.path)
            if (plain := plain_photo(photo)) is not None:
                text, warning = plain
                words = tuple(text.split())
                captions.append(PhotoCaption(words, path=path, size=photo.size, low_confidence=True, warning=warning))
                continue
            confidence = float(self.bundle.calibration.confidence([signs])[0])
            low = confidence < self.bundle.calibration.low or not caption.words
            said = PhotoCaption(
                caption.words,
                caption.log_prob,
                caption.trace,
                path=path,
                size=photo.size,
                confidence=confidence,
                low_confidence=low,
                concepts=concepts,
                warning="" if caption.words else SILENT,
            )
            captions.append(said)
        return captions

    @torch.inference_mode()
    def choose_captions(
        self,
        scenes: SceneBatch,
        beam: int = BEAM,
        rules: Rules | None = None,
        images: Embedding | None = None,
        pixels: Sequence[Pixels] = (),
    ) -> list[ChosenCaption]:
        """Decode each scene, choose the caption that fits the photo best, and point its nouns at boxes.

        With the pixels of the photos, captions say nothing of colours that these do not show.
        """
        vocabulary = self.bundle.captioner.vocabulary
        rules, names = split_rules(rules or CAREFUL, vocabulary)
        if rules.whole:
            beam = max(beam, WIDE_BEAM)
        evidence = self._grounder.photo_evidence(scenes, images)
        memory, concepts = self.captioner.encode(scenes), evidence.concepts
        photos = EncodedPhotos(memory, evidence, pixels)
        tries = list[list[Candidate]]()  # one, unless a name has no place in the captions without it
        for attempt in (rules, *(rules_with_stand_ins(rules, names, turn) for turn in turns(names))):
            size = beam if attempt is rules else max(beam, 3)
            strategy = Greedy() if size == 1 else Beam(size, keep=size)
            decoded = decode(self.captioner, memory, strategy, attempt, vocabulary)
            tries.append(self._chooser.choose(photos, decoded, attempt))
            if all(has_places(candidate.words, names) for candidate in tries[0]):
                break
        chosen = [self._with_places(candidates, names) for candidates in zip(*tries, strict=True)]
        captions = self._trace(chosen, memory, scenes)
        originals = captions  # as the captioner said them: a chosen one may have a noun replaced
        if any(candidate.instead_of for candidate in chosen):
            originals = self._trace([candidate.instead_of or candidate for candidate in chosen], memory, scenes)
        signs = [
            features(original, signs_of(candidate, photo_concepts))
            for original, candidate, photo_concepts in zip(originals, chosen, concepts, strict=True)
        ]
        captions = choose_boxes(self.bundle, captions, scenes, images=evidence.images)
        captions = [write_names(caption, names, rules.must_include) for caption in captions]
        return [ChosenCaption(*one) for one in zip(captions, signs, concepts, strict=True)]

    def _with_places(self, tries: Sequence[Candidate], names: Sequence[CopyName]) -> Candidate:
        """The caption without stand-ins, where all names have a place in it; else the best of those with them."""
        if has_places(tries[0].words, names):
            return tries[0]
        return self._chooser.best([one for one in tries[1:] if has_places(one.words, names)] or tries[1:])

    def _trace(self, chosen: Sequence[Candidate], memory: Memory, scenes: SceneBatch) -> list[Caption]:
        """Captions with where each word came from."""
        vocabulary = self.bundle.captioner.vocabulary
        words = TextBatch.collate([candidate.words for candidate in chosen], vocabulary).ids
        log_probs = torch.tensor([[candidate.log_prob] for candidate in chosen])
        decoded = DecodeResult(words.to(self.device).unsqueeze(1), log_probs, log_probs, log_probs.isfinite())
        return [best for best, *_ in trace_captions(self.captioner, memory, decoded, scenes, vocabulary)]

    @torch.inference_mode()
    def alternatives(self, photo: Source | Photo, count: int = 5, *, rules: Rules | None = None) -> list[Caption]:
        """The `count` most probable captions of a photo, the best first: words and probabilities, without boxes."""
        scenes, vocabulary = self.scenes([self.read(photo)]), self.bundle.captioner.vocabulary
        memory = self.captioner.encode(scenes)
        rules, names = split_rules(rules or CAREFUL, vocabulary)
        strategy = Beam(max(count, 5), keep=count)
        decoded = decode(self.captioner, memory, strategy, rules_with_stand_ins(rules, names), vocabulary)
        captions = trace_captions(self.captioner, memory, decoded, scenes, vocabulary, trace=False)[0]
        return [write_names(caption, names, rules.must_include) for caption in captions]

    def distinct(
        self,
        paths: Iterable[PathLike],
        *,
        length: Length = "normal",
        beam: int = BEAM,
        rules: Rules | None = None,
        contrast: Contrast | None = None,
        bad: Callable[[SightlineError], None] | None = None,
        progress: Progress = iter,
    ) -> list[PhotoCaption]:
        """The captions of the photos at `paths`, in their order, those that are alike rewritten to tell photos apart.

        Photos with captions that are alike are looked at again. `contrast` is how their captions are chosen
        (`sightline.distinct_captions`); the other arguments are those of `caption_many`.

        >>> captions = pipeline.distinct(["photos/cat.jpg", "photos/coffee.jpg"])
        >>> len({caption.text for caption in captions})
        2
        """
        from sightline.distinct_captions import tell_apart

        rules = _rules(length, rules)
        captions = list(self.caption_many(paths, beam=beam, rules=rules, bad=bad, progress=progress))
        return tell_apart(self, captions, rules=rules, contrast=contrast, bad=bad)

    @overload
    def __call__(
        self, images: list[P] | tuple[P, ...], *, length: Length = "normal", beam: int = BEAM
    ) -> list[list[dict[str, str]]]: ...
    @overload
    def __call__(
        self, images: Source | Photo, *, length: Length = "normal", beam: int = BEAM
    ) -> list[dict[str, str]]: ...
    def __call__(
        self, images: P | list[P] | tuple[P, ...], *, length: Length = "normal", beam: int = BEAM
    ) -> list[dict[str, str]] | list[list[dict[str, str]]]:
        """Captions in the form of a `transformers` pipeline for image-to-text, so that one can stand in for the other.

        One photo gives a list with one answer; a list gives such a list for each.

        >>> [sorted(answer) for answer in pipeline("photos/cat.jpg")]
        [['generated_text']]
        >>> len(pipeline(["photos/cat.jpg", "photos/coffee.jpg"]))
        2
        """
        if isinstance(images, list | tuple):
            return [[{"generated_text": caption.text}] for caption in self.caption(images, length=length, beam=beam)]
        return [{"generated_text": self.caption(images, length=length, beam=beam).text}]

    def ground(self, photo: Source | Photo, sentence: str) -> Grounding:
        """Where in a photo the nouns of a sentence are: a box and a score for each that a model knows."""
        return self.ground_many([photo], [sentence])[0]

    @torch.inference_mode()
    def ground_many(self, photos: Sequence[Source | Photo], sentences: Sequence[str]) -> list[Grounding]:
        """`ground` for many photos, each with its own sentence."""
        if len(photos) != len(sentences):
            raise CountError(f"{len(photos)} photos with {len(sentences)} sentences", fix="give a sentence for each")
        remaining = iter(sentences)
        results: list[Grounding] = []
        for group in groups(map(self.read, photos), BATCH):
            scenes = self.scenes(group)
            for row, photo in enumerate(group):
                results.append(self._grounder.ground(next(remaining), photo, scenes, row))
        return results

    def audit(self, photo: Source | Photo, captions: str | Sequence[str], *, least: float | None = None) -> list[Audit]:
        """Which nouns of captions that someone wrote the photo does not support, and what is seen instead.

        Args:
            photo: one.
            captions: one, or several.
            least: the support that a noun needs, from 0 to 1; by default the model's own.
        """
        texts = [captions] if isinstance(captions, str) else captions
        return self.audit_photos([self.read(photo)], [texts], least=least)[0]

    @torch.inference_mode()
    def audit_photos(
        self, photos: Sequence[Photo], captions: Sequence[Sequence[str]], *, least: float | None = None
    ) -> list[list[Audit]]:
        """The audits of the captions of each photo that was read; `least` is that of `audit`."""
        scenes = self.scenes(photos)
        return [
            self._grounder.audit(texts, photo, scenes, row, least)
            for row, (photo, texts) in enumerate(zip(photos, captions, strict=True))
        ]

    @torch.inference_mode()
    def embed_photos(self, photos: Iterable[Photo], *, captions: bool = True) -> list[PhotoEmbedding]:
        """The vectors of photos that were read, however many, and their captions where asked for."""
        matcher = self._matcher()
        embeddings: list[PhotoEmbedding] = []
        for group in groups(photos, BATCH if self.device.type == "cpu" else BATCH_ON_GPU):
            scenes = self.scenes(group)
            images = matcher.model.embed_images(scenes)
            vectors: Array = images["vector"].float().cpu().numpy()
            texts = self.caption_photos(group, scenes=scenes, images=images) if captions else [None] * len(group)
            for photo, vector, caption in zip(group, vectors, texts, strict=True):
                embeddings.append(PhotoEmbedding(os.fspath(photo.path), photo.size, vector, caption))
        return embeddings

    def vectors(self, photos: Sequence[Source | Photo]) -> Array:
        """(n, d) vectors of photos, to search with."""
        embeddings = self.embed_photos(map(self.read, photos), captions=False)
        return np.stack([embedding.vector for embedding in embeddings])

    @torch.inference_mode()
    def text_vectors(self, sentences: Sequence[str]) -> Array:
        """(n, d) vectors of sentences, or of a few words each, to search with."""
        matcher = self._matcher()
        text_rule = rule(matcher.text_rule)
        words = [text_rule.words(sentence) for sentence in sentences]
        texts = TextBatch.collate(words, matcher.vocabulary).to(self.device)
        return np.asarray(matcher.model.embed_texts(texts)["vector"].float().cpu())

    def _matcher(self) -> Reader[Matcher]:
        matcher = self.bundle.matcher
        if matcher is None or not isinstance(matcher.model, GlobalMatcher):
            fix = "use the model that comes with Sightline"
            raise ConfigError("this model has no matcher of whole photos", fix=fix)
        return matcher

    def index(
        self,
        folder: PathLike,
        store: PathLike | None = None,
        *,
        captions: bool = True,
        engine: Kind | None = None,
        force: bool = False,
        progress: Progress = iter,
    ) -> SyncReport:
        """Index the photos below a folder for `search`: new and changed ones are looked at, missing ones dropped.

        Args:
            folder: of photos, and of folders of them.
            store: where the index is, a folder or an address such as s3://bucket/photos; by default `.sightline-index`
                in the current folder. One store may hold several folders of photos.
            captions: also caption the photos, to search what captions say.
            engine: exact or lance; by default what fits the number of photos.
            force: look at every photo of the folder again; with another model, begin the whole index again.
            progress: wraps the paths of the photos that are looked at.

        >>> pipeline.index("photos", "photos.index").total
        5
        """
        from sightline.search.query import default_store, model_of
        from sightline.search.sync import sync

        return sync(
            folder,
            default_store() if store is None else store,
            partial(self.embed_photos, captions=captions),
            maker=model_of(self.bundle),
            size=self.size,
            captions=captions,
            engine=engine,
            force=force,
            progress=progress,
        )

    def search(
        self,
        wanted: Source,
        *,
        image: Source | None = None,
        avoid: str = "",
        store: PathLike | None = None,
        k: int = 10,
        captions: bool = True,
        exact: bool | None = None,
        explain: bool = False,
    ) -> list[Hit]:
        """The indexed photos that fit best, the best first.

        Args:
            wanted: what to look for: words if it is a string, else a photo, such as `Path("photo.jpg")`.
            image: a photo besides words; both count alike.
            avoid: words for what not to find.
            store: where the index is; by default `.sightline-index` in the current folder, or the nearest above it.
            k: photos, at most.
            captions: whether what captions say counts too, besides vectors.
            exact: True compares every vector, False uses the approximate index; by default what is usual there.
            explain: look again at the hits, for where in them the words are.

        >>> pipeline.index("photos", "photos.index").total
        5
        >>> [hit.score > 0.99 for hit in pipeline.search(Path("photos/cat.jpg"), store="photos.index", k=1)]
        [True]
        >>> len(pipeline.search("a cup on a table", store="photos.index", k=3))
        3
        """
        from sightline.search.query import PhotoIndex

        if not isinstance(wanted, str):
            if image is not None:
                raise ConfigError("two photos to look for", fix="give one of them, or words and a photo")
            wanted, image = "", wanted
        elif is_picture(Path(wanted).name) and Path(wanted).exists():
            raise ConfigError("this is a photo, and a string is words", where=wanted, fix="give it as a pathlib.Path")
        return PhotoIndex(store).search(
            self, wanted, photo=image, avoid=avoid, count=k, captions=captions, exact=exact, explain=explain
        )


def load_model(path: PathLike | None = None, device: torch.device | str = "cpu") -> Bundle:
    """The bundle of a file, the one that comes with Sightline, or one made around the checkpoint of a captioner.

    A captioner without eyes of its own gets those of the model that comes with Sightline, and its matcher, if it has
    learned from what these see (`sightline train` on photos, `sightline extract`). R²M, which reads names, gets them in
    any case. `path` may be the folder of a run.
    """
    path = None if path is None else model_file(path)
    if path is None or kind_of_file(path) != "checkpoint":
        return load_bundle(path, device)
    checkpoint = load_checkpoint(path, device)
    if isinstance(checkpoint.captioner(), EndToEnd):
        return Bundle.of(checkpoint)
    shipped = load_bundle(device=device)
    if isinstance(checkpoint.model, R2M):
        from sightline.checkpoint.style_captions import with_style

        return replace(with_style(shipped, path, device), auditing=SupportModel(), card=checkpoint.card)
    captioner, fingerprint = checkpoint.captioner(), shipped.vision.fingerprint()
    pool = next((side for side in GRID_POOLS if checkpoint.fingerprint == scenes_fingerprint(fingerprint, side)), None)
    if pool is None:
        raise CheckpointError(
            f"this {captioner.config.kind} model has no eyes, and has learned from other features than those "
            "that the vision model of this version of Sightline gives",
            where=path,
            fix="train it again on what this one sees, or name the photos' features: `sightline evaluate --features`",
        )
    if pool > 1 and "grid" in captioner.needs:
        captioner = PooledCaptioner(captioner, pool).eval()
    return replace(
        shipped,
        captioner=Reader(captioner, checkpoint.vocabulary, checkpoint.text_rule),
        calibration=Calibration(),
        auditing=SupportModel(),
        card=checkpoint.card,
        fit=0.0,
        choice=Choice(),
    )


def _rules(length: Length, rules: Rules | None) -> Rules:
    """The rules of a length, or those that were given instead."""
    if rules is None:
        return rules_of(str(length))
    if length != "normal":
        raise ConfigError("`length` and `rules` both say how long captions are", fix="give one of them")
    return rules


def groups(photos: Iterable[Photo], size: int) -> Iterator[list[Photo]]:
    remaining = iter(photos)
    while group := list(itertools.islice(remaining, size)):
        yield group
