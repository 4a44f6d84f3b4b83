"""What people call: a model loaded once, and photos in, captions with boxes out.

sight = sightline.load()
said = sight.caption("photo.jpg")
print(said, said.confidence, said.to_json()["words"])
sight.index("photos")
sight.search("a dog on a beach")
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import torch

from sightline.caption import PhotoCaption
from sightline.checkpoint.bundle import Bundle, load_bundle
from sightline.checkpoint.checkpoint_file import kind_of_file
from sightline.checkpoint.model_checkpoint import load as load_checkpoint
from sightline.decoding.constraints import Rules
from sightline.devices import choose_device
from sightline.errors import CheckpointError, ConfigError, CountError, SightlineError
from sightline.files import PathLike, model_file
from sightline.grounding.calibration import Calibration
from sightline.grounding.evidence import Audit, Grounding
from sightline.grounding.support_model import SupportModel
from sightline.models.end_to_end import EndToEnd
from sightline.models.r2m import R2M
from sightline.models.reader import Reader
from sightline.photo_embedding import PhotoEmbedding
from sightline.pipeline_base import Photo, PipelineBase, groups
from sightline.scene import Array
from sightline.vision.find_photos import is_picture
from sightline.vision.images import Source
from sightline.vision.photo_reader import Progress, left_out, read_photos

if TYPE_CHECKING:  # what only some verbs need is imported by them: a caption is to start fast
    from sightline.distinct_captions import Contrast
    from sightline.search.index_store import Kind
    from sightline.search.query import Hit
    from sightline.search.sync import SyncReport

BATCH = 8  # photos that are looked at together


def load(path: PathLike | None = None, device: str = "auto", threads: int | None = None) -> Pipeline:
    """The model that comes with Sightline, or that of a file, ready for photos.

    Args:
        path: a bundle (`sightline.checkpoint.bundle.save_bundle`), or the checkpoint of a captioner that
            `sightline train` saved.
        device: auto, cpu, cuda, cuda:1 or mps; auto takes an accelerator where there is one.
        threads: that a CPU computes with, in this whole process; by default as many as PyTorch chooses.
    """
    if threads is not None:
        if threads < 1:
            raise ConfigError(f"`threads` is {threads}", fix="give 1 or more")
        torch.set_num_threads(threads)
    place = choose_device(device)
    return Pipeline(load_model(path, place), place)


def load_model(path: PathLike | None = None, device: torch.device | str = "cpu") -> Bundle:
    """The bundle of a file, the one that comes with Sightline, or one made around the checkpoint of a captioner.

    A captioner without eyes of its own gets those of the model that comes with Sightline, and its matcher, if it has
    learned from what these see (`sightline extract`). R²M, which reads names, gets them in any case. `path` may be the
    folder of a run.
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
    if checkpoint.fingerprint != shipped.vision.fingerprint():
        raise CheckpointError(
            f"this {checkpoint.model.config.kind} model has no eyes, and has learned from other features than those "
            "that Sightline's own vision model gives",
            where=path,
            fix="train it on scenes of `sightline extract`, or caption its features with `sightline evaluate`",
        )
    says = Reader(checkpoint.captioner(), checkpoint.vocabulary, checkpoint.text_rule)
    return replace(
        shipped, captioner=says, calibration=Calibration(), auditing=SupportModel(), card=checkpoint.card, fit=0.0
    )


class Pipeline(PipelineBase):
    """A bundle at work. Photos are paths, bytes of files, Pillow images or arrays (`sightline.vision.images`)."""

    @overload
    def caption(
        self, photos: list[Source] | tuple[Source, ...], *, beam: int = 3, rules: Rules | None = None
    ) -> list[PhotoCaption]: ...
    @overload
    def caption(self, photos: Source, *, beam: int = 3, rules: Rules | None = None) -> PhotoCaption: ...
    def caption(
        self, photos: Source | list[Source] | tuple[Source, ...], *, beam: int = 3, rules: Rules | None = None
    ) -> PhotoCaption | list[PhotoCaption]:
        """The caption of one photo, or those of a list in its order.

        Args:
            photos: one, or a list or tuple of them. The first that cannot be read is an error.
            beam: hypotheses that are followed at once; 1 takes the most probable word at each step.
            rules: what captions may and must say.
        """
        if not isinstance(photos, list | tuple):
            return self.caption_photos([self.read(photos)], beam, rules)[0]
        coming = map(self.read, photos)
        return [said for group in groups(coming, BATCH) for said in self.caption_photos(group, beam, rules)]

    def caption_many(
        self,
        paths: Iterable[PathLike],
        *,
        batch: int = BATCH,
        beam: int = 3,
        rules: Rules | None = None,
        bad: Callable[[SightlineError], None] | None = None,
        progress: Progress = iter,
    ) -> Iterator[PhotoCaption]:
        """The captions of the photos at `paths`, in their order, as they come; files are read while the model works.

        Args:
            paths: of photos; `sightline.vision.find_photos.find_photos` lists those of folders and patterns.
            batch: photos that are looked at together.
            beam: as for `caption`.
            rules: as for `caption`.
            bad: is given the error of a file that cannot be read, which stops nothing. By default all are told in one
                warning at the end.
            progress: wraps the paths, such as `sightline.vision.photo_reader.progress_bar("captioning")`.
        """
        for group in self._read_many(paths, batch, bad, progress):
            yield from self.caption_photos(group, beam, rules)

    def embed_many(
        self,
        paths: Iterable[PathLike],
        *,
        captions: bool = True,
        batch: int = BATCH,
        beam: int = 3,
        rules: Rules | None = None,
        bad: Callable[[SightlineError], None] | None = None,
        progress: Progress = iter,
    ) -> Iterator[PhotoEmbedding]:
        """The vectors of the photos at `paths`, and captions where asked for; the rest is as for `caption_many`."""
        for group in self._read_many(paths, batch, bad, progress):
            yield from self.look(group, captions=captions, beam=beam, rules=rules)

    def vectors(self, photos: Sequence[Source]) -> Array:
        """(n, d) vectors of photos, to search with."""
        looks = [look for group in groups(map(self.read, photos), BATCH) for look in self.look(group, captions=False)]
        return np.stack([look.vector for look in looks])

    def ground(self, photo: Source, sentence: str) -> Grounding:
        """Where in a photo the nouns of a sentence are: a box and a score for each that a model knows."""
        return self.ground_many([photo], [sentence])[0]

    @torch.inference_mode()
    def ground_many(self, photos: Sequence[Source], sentences: Sequence[str]) -> list[Grounding]:
        """The same of many photos, each with its own sentence."""
        if len(photos) != len(sentences):
            raise CountError(f"{len(photos)} photos with {len(sentences)} sentences", fix="give a sentence for each")
        results: list[Grounding] = []
        for group in groups(map(self.read, photos), BATCH):
            scenes, done = self.scenes(group), len(results)
            for row, (path, _, size) in enumerate(group):
                results.append(self._grounder.ground(sentences[done + row], scenes, row, path, size))
        return results

    def audit(self, photo: Source, captions: str | Sequence[str], *, least: float | None = None) -> list[Audit]:
        """Which nouns of captions that someone wrote the photo does not support, and what is seen instead.

        Args:
            photo: one.
            captions: one, or several.
            least: the support that a noun needs, from 0 to 1; by default the model's own.
        """
        given = [captions] if isinstance(captions, str) else captions
        return self.audit_photos([self.read(photo)], [given], least=least)[0]

    def distinct(
        self,
        paths: Iterable[PathLike],
        *,
        beam: int = 3,
        rules: Rules | None = None,
        contrast: Contrast | None = None,
        bad: Callable[[SightlineError], None] | None = None,
        progress: Progress = iter,
    ) -> list[PhotoCaption]:
        """The captions of the photos at `paths`, in their order, those that are alike rewritten to tell photos apart.

        Args:
            paths: of photos, as for `caption_many`; photos with captions that are alike are looked at again.
            beam: as for `caption`.
            rules: as for `caption`.
            contrast: how captions are chosen (`sightline.distinct_captions`).
            bad: as for `caption_many`.
            progress: as for `caption_many`.

        >>> said = pipeline.distinct(["photos/cat.jpg", "photos/coffee.jpg"])
        >>> len({one.text for one in said})
        2
        """
        from sightline.distinct_captions import tell_apart

        said = list(self.caption_many(paths, beam=beam, rules=rules, bad=bad, progress=progress))
        return tell_apart(self, said, rules=rules, contrast=contrast, bad=bad)

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
        from sightline.search.index_store import default_store, model_of
        from sightline.search.sync import sync

        return sync(
            folder,
            default_store() if store is None else store,
            partial(self.embed_loaded, captions=captions),
            maker=model_of(self.bundle),
            size=self.bundle.vision.size,
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

    def _read_many(
        self,
        paths: Iterable[PathLike],
        batch: int,
        bad: Callable[[SightlineError], None] | None,
        progress: Progress,
    ) -> Iterator[list[Photo]]:
        if batch < 1:
            raise ConfigError(f"`batch` is {batch}", fix="give 1 or more")
        refused: list[SightlineError] = []
        reading = read_photos(list(paths), self._vision.size, bad=bad or refused.append, progress=progress)
        yield from groups(((os.fspath(photo.path), photo.pixels, photo.size) for photo in reading), batch)
        if refused:
            warnings.warn(left_out(refused), stacklevel=3)
