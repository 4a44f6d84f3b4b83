"""Up-Down checkpoints of self-critical.pytorch and Grounded-Image-Captioning: `model.pth` with `infos_<id>.pkl`.

There id 0 begins, ends and pads a caption, words count from 1 and `UNK` comes last. Here each has an id of its own, so
the rows of the embedding and of the output layer move; ids that the model never says get a probability of zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline.checkpoint.foreign_weights import Weights, fill_model, matrix, need, options, rename_tensors, tensors
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.checkpoint.torch_file import read_torch
from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, load_path
from sightline.errors import CheckpointError, CountError, DataError, MissingRecordError
from sightline.models.updown import UpDownConfig
from sightline.text.vocabulary import END, START, UNK, Vocabulary

NEVER = -1e4  # a logit whose probability is 0 in float32 and bfloat16

_NAMES = {
    "embed.0.": "word_embedding.",
    "fc_embed.0.": "mean_embedding.",
    "ctx2att.": "region_attention.",
    "core.att_lstm.": "attention_lstm.",
    "core.lang_lstm.": "language_lstm.",
    "core.attention.h2att.": "hidden_attention.",
    "core.attention.alpha_net.": "attention_score.",
    "logit.": "output.",
}
_REGIONS = (  # of `att_embed`, by how many of its layers are batch norms
    {"att_embed.0.": "region_embedding."},
    {"att_embed.0.": "region_norm.", "att_embed.1.": "region_embedding."},
    {"att_embed.0.": "region_norm.", "att_embed.1.": "region_embedding.", "att_embed.4.": "embedded_norm."},
)
_BY_WORD = (("word_embedding.weight", START, 0.0), ("output.weight", END, 0.0), ("output.bias", END, NEVER))


def is_updown(weights: Mapping[str, Any]) -> bool:
    """Whether a state dict has the names of this Up-Down."""
    return "core.att_lstm.weight_ih" in weights and "ctx2att.weight" in weights


def convert_updown(content: Mapping[str, Any], path: Path, infos: Path | None) -> Checkpoint:
    """The checkpoint of a state dict, with the words of its `infos` file."""
    infos = infos or _beside(path)
    told = load_path(infos, {**CONTAINERS, **NUMBERS})
    if not isinstance(told, dict) or not isinstance(told.get("vocab"), Mapping):
        raise DataError("no `vocab` in it", where=infos, fix="give the infos_<id>.pkl that was saved with the model")
    words = _words(told["vocab"], infos)
    weights = tensors(content, path)
    if "logit.weight" not in weights:
        raise CheckpointError("its output has several layers", where=path, fix="only `logit_layers` 1 can be converted")
    rows = len(matrix(weights, "logit.weight", path))
    if rows != len(words) + 1:
        raise CountError(
            f"the model says {rows - 1} words and {infos} lists {len(words)}", where=path, fix="give matching files"
        )
    vocabulary = Vocabulary(word for word in words if word != "UNK")
    homes = torch.tensor([UNK if word == "UNK" else vocabulary.id(word) for word in words])
    config = _config(weights, path)
    ours = rename_tensors(weights, {**_NAMES, **_REGIONS[config.batch_norm]}, path)
    for name, zero, rest in _BY_WORD:
        part = need(ours, name, path)
        if part.shape[:1] != (rows,):
            raise CheckpointError(f"`{name}` has not {rows} rows", where=path, fix="check that it is the whole model")
        ours[name] = _placed(part, zero, homes, len(vocabulary), rest)
    card = {"converted from": "self-critical Up-Down", "options": options(told.get("opt"))}
    return Checkpoint(fill_model(config, len(vocabulary), ours, path), vocabulary, "self-critical", card=card)


def _config(weights: Weights, path: Path) -> UpDownConfig:
    norms = sum(f"att_embed.{layer}.running_mean" in weights for layer in (0, 4))
    return UpDownConfig(
        region_width=matrix(weights, f"att_embed.{1 if norms else 0}.weight", path).shape[1],
        word_size=matrix(weights, "embed.0.weight", path).shape[1],
        hidden_size=matrix(weights, "core.att_lstm.weight_hh", path).shape[1],
        attention_size=len(matrix(weights, "ctx2att.weight", path)),
        mean_of="raw",
        batch_norm=(0, 1, 2)[norms],
    )


def _placed(rows: Tensor, zero: int, homes: Tensor, vocab_size: int, rest: float) -> Tensor:
    """Rows of their ids at our ids: their row 0 at `zero`, the words at `homes`, `rest` where they have none."""
    placed = torch.full((vocab_size, *rows.shape[1:]), rest, dtype=rows.dtype)
    placed[zero] = rows[0]
    placed[homes] = rows[1:]
    return placed


def _words(vocab: Mapping[Any, Any], where: Path) -> list[str]:
    by_id = {str(key): word for key, word in vocab.items()}
    found = [by_id.get(str(number)) for number in range(1, len(by_id) + 1)]
    for number, word in enumerate(found, start=1):
        if not isinstance(word, str):
            raise DataError(f"no word has id {number}", where=where, fix="ids must run from 1 without gaps")
    return [str(word) for word in found]


def _beside(path: Path) -> Path:
    found = sorted(path.parent.glob("infos*.pkl"))
    best = [one for one in found if one.stem.endswith("-best") == path.stem.endswith("-best")]
    if len(best or found) == 1:
        return (best or found)[0]
    raise MissingRecordError(
        f"{'several infos files lie' if found else 'no infos file lies'} beside it, and the words are in one of them",
        where=path,
        fix="name it: --infos infos_<id>.pkl",
    )


def read_weights(path: Path) -> Any:
    """The content of a checkpoint; a state dict saved from several GPUs loses its `module.` prefix."""
    content = read_torch(path)
    if isinstance(content, Mapping) and content and all(str(name).startswith("module.") for name in content):
        return {str(name).removeprefix("module."): value for name, value in content.items()}
    return content
