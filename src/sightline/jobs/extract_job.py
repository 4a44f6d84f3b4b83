"""Photos to scenes: the job behind `sightline extract`, and behind training on photos that have no features yet.

extract("photos", "scenes", encoder, device="cuda")
FeatureStore("scenes")["2024/cat.jpg"].regions
"""

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from sightline.batch import MASKS, SceneBatch
from sightline.checkpoint import model_checkpoint
from sightline.checkpoint.bundle import default_bundle, load_bundle
from sightline.checkpoint.checkpoint_file import kind_of_file
from sightline.devices import choose_device
from sightline.errors import CheckpointError, DataError
from sightline.files import PathLike, model_file
from sightline.jobs.job import Executor, Report, run, run_locally
from sightline.jobs.job_photos import GONE, PhotoRef, id_of, mark_of, photos_below
from sightline.jobs.ledger import Ledger, RecordLog
from sightline.models.end_to_end import EndToEnd
from sightline.photo import Photo
from sightline.scene import Array, Scene
from sightline.vision.encoder import ConceptEncoder, Encoder, InferenceEncoder, VisionModel
from sightline.vision.feature_store import FeatureStore
from sightline.vision.grid_encoder import ImageNetEncoder
from sightline.vision.photo_reader import Progress
from sightline.vision.store_layout import EXACT, PARTS

Precision = Literal["float16", "float32"]
LEDGER = "ledger.jsonl"
FOLDERS = "folders.jsonl"  # those whose photos are in a store
IMAGENET = "imagenet"  # the name of a vision model without a file
BATCH_ON_CPU = 16  # more take memory, and hardly less time
BATCH_ON_GPU = 64  # and on any other accelerator


def extract(
    folder: PathLike,
    store: PathLike,
    encoder: Encoder | VisionModel,
    *,
    device: torch.device | str = "cpu",
    batch: int | None = None,
    dtype: Precision | None = None,
    progress: Progress = iter,
    executor: Executor = run_locally,
) -> Report:
    """Write the scenes of every photo below `folder` into a feature store.

    A scene's id is the photo's path below the folder. Photos that are there already are skipped, unless they changed
    since. Files that cannot be read are left out, and the report lists them. A photo of the same path below another
    folder, whose scene is in the store, is an error.

    Args:
        folder: of photos, and of folders of them; also an address such as s3://bucket/photos, or a parquet file.
        store: the store's folder. A new one is made; in an existing one, what is missing is added.
        encoder: makes the scenes. A vision model of Sightline is folded for it.
        device: to compute on; auto for what there is.
        batch: photos that are looked at together; by default 16 on a CPU, 64 elsewhere.
        dtype: the numbers that a new store holds; by default float16.
        progress: wraps the paths of the photos, such as `sightline.vision.photo_reader.progress_bar("extracting")`.
        executor: who looks at them: this process, or a cluster (`sightline.jobs.cluster`), each of whose workers has a
            device of its own.
    """
    if isinstance(encoder, VisionModel):
        encoder = InferenceEncoder(encoder)
    on_cpu = choose_device(str(device)).type == "cpu"
    if batch is None:
        batch = BATCH_ON_CPU if on_cpu else BATCH_ON_GPU
    photos, problems = photos_below(folder)
    with (
        FeatureStore.writer(store, fingerprint=encoder.fingerprint(), dtype=dtype, flush_every=max(batch, 1)) as writer,
        Ledger(Path(store) / LEDGER) as ledger,
        RecordLog(Path(store) / FOLDERS) as folders,
    ):
        _refuse_other_photos(photos, id_of(folder), folders, ledger, store)
        work = SceneMaker(encoder, device, narrow=writer.settings.dtype == "float16")
        return run(
            photos,
            work,
            writer,
            ledger,
            size=encoder.size,
            batch=batch,
            progress=progress,
            executor=executor,
            problems=problems,
        )


def _refuse_other_photos(
    photos: Sequence[PhotoRef], folder: str, folders: RecordLog, ledger: Ledger, store: PathLike
) -> None:
    """Refuse photos whose ids another folder's photos have: those that the ledger knows, and that are as they were."""
    for photo in photos:
        entry = ledger.get(photo.id)
        if entry is None or entry.error or entry.mark in (photo.mark, GONE):
            continue
        for other in folders.records:
            if other != folder and mark_of(path := f"{other.rstrip('/')}/{photo.id}") == entry.mark:
                what = f"the scene of {photo.id} is that of {path}, and {photo.path} would replace it"
                fix = "write to another folder, or extract the folder that both are in"
                raise DataError(what, where=store, fix=fix)
    if folder not in folders:
        folders.add((folder, None))
        folders.flush()


class SceneMaker:
    """From photos to scenes: an encoder on its device, which may travel to other processes by pickle.

    A device of auto is chosen anew wherever it is unpacked. With `narrow`, features are float16 where that can hold
    them; boxes and scores stay float32.
    """

    def __init__(self, encoder: Encoder, device: torch.device | str = "cpu", narrow: bool = True) -> None:
        self.encoder, self.narrow = encoder, narrow
        self.device_name, self.device = str(device), choose_device(str(device))
        if isinstance(encoder, nn.Module):
            encoder.to(self.device).eval()
        self.fingerprint = encoder.fingerprint()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the encoder on the CPU: the process that unpickles it chooses its own device."""
        encoder = self.encoder
        if isinstance(encoder, nn.Module):
            encoder = copy.deepcopy(encoder).cpu()
        return SceneMaker, (encoder, self.device_name, self.narrow)

    @torch.inference_mode()
    def __call__(self, photos: Sequence[Photo]) -> list[Scene]:
        """The scenes of the photos, in their order."""
        pixels = torch.from_numpy(np.stack([photo.pixels for photo in photos])).permute(0, 3, 1, 2).to(self.device)
        batch = self.encoder.scenes(pixels, [photo.id for photo in photos])
        concepts = self.encoder.concepts(batch) if isinstance(self.encoder, ConceptEncoder) else [()] * len(photos)
        rows: dict[str, Any] = {name: self._rows(batch, name) for name in PARTS if getattr(batch, name) is not None}
        rows |= {"grid_shape": batch.grid_shapes or (None,) * len(photos), "concepts": concepts}
        scenes = []
        for i, photo in enumerate(photos):
            parts = {name: row[i] for name, row in rows.items()}
            scenes.append(Scene(photo.id, **parts, size=photo.size, fingerprint=self.fingerprint))
        return scenes

    def _rows(self, batch: SceneBatch, name: str) -> list[Array]:
        """A part of each scene, without its padding."""
        part = batch.part(name, by="the feature store").float()
        if self.narrow and name not in EXACT and not (half := part.half()).isinf().any():
            part = half  # what float16 cannot hold stays as it is: the store's error says where it is
        arrays = list(part.cpu().numpy())
        if name not in MASKS:
            return arrays
        masks = batch.mask(name).cpu().numpy()
        return [array[mask] for array, mask in zip(arrays, masks, strict=True)]


def vision_of(model: PathLike | None = None) -> VisionModel:
    """The vision model of a bundle, or of the checkpoint or run of a model that was trained with one, to evaluate with.

    `imagenet` is EfficientNet-Lite2 as trained on ImageNet, its cells and classes; None is the model of the package.
    """
    if model is not None and os.fspath(model) == IMAGENET:
        return ImageNetEncoder.imagenet()
    path = default_bundle() if model is None else model_file(model)
    if kind_of_file(path) == "bundle":
        return load_bundle(path).vision
    loaded = model_checkpoint.load(path).model
    if not isinstance(loaded, EndToEnd):
        what = f"this {loaded.config.kind} model reads features and has no eyes of its own"
        fix = "give a model that was trained with a vision model, a bundle, or `imagenet`"
        raise CheckpointError(what, where=path, fix=fix)
    return loaded.vision
