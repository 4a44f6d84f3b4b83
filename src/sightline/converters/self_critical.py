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

from sightline.checkpoint import Checkpoint
from sightline.converters.torch_file import read_torch
from sightline.converters.weights import fill, options
from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, load_path
from sightline.errors import CheckpointError, CountError, DataError, MissingRecordError
from sightline.models.updown import UpDown, UpDownConfig
from sightline.text.vocabulary import END, START, UNK, Vocabulary

NEVER = -1e4  # a logit whose probability is 0 in float32 and bfloat16

_NAMES = {
    "mean_embedding": "fc_embed.0",
    "region_attention": "ctx2att",
    "attention_lstm": "core.att_lstm",
    "language_lstm": "core.lang_lstm",
    "hidden_attention": "core.attention.h2att",
    "attention_score": "core.attention.alpha_net",
}


def is_updown(weights: Mapping[str, Any]) -> bool:
    """Whether a state dict has the names of this Up-Down."""
    return "core.att_lstm.weight_ih" in weights and "ctx2att.weight" in weights


def convert_updown(weights: Mapping[str, Tensor], path: Path, infos: Path | None) -> Checkpoint:
    """The checkpoint of a state dict, with the words of its `infos` file."""
    infos = infos or _beside(path)
    told = load_path(infos, {**CONTAINERS, **NUMBERS})
    if not isinstance(told, dict) or not isinstance(told.get("vocab"), Mapping):
        raise DataError("no `vocab` in it", where=infos, fix="give the infos_<id>.pkl that was saved with the model")
    words = _words(told["vocab"], infos)
    if "logit.weight" not in weights:
        raise CheckpointError("its output has several layers", where=path, fix="only `logit_layers` 1 can be converted")
    rows = len(weights["logit.weight"])
    if rows != len(words) + 1:
        raise CountError(
            f"the model says {rows - 1} words and {infos} lists {len(words)}", where=path, fix="give matching files"
        )
    vocabulary = Vocabulary(word for word in words if word != "UNK")
    homes = torch.tensor([UNK if word == "UNK" else vocabulary.id(word) for word in words])
    config = _config(weights)
    model = config.build(len(vocabulary))
    fill(model, _ours(weights, model, homes), path)
    card = {"converted from": "self-critical Up-Down", "options": options(told.get("opt"))}
    return Checkpoint(model.eval(), vocabulary, "self-critical", card=card)


def _config(weights: Mapping[str, Tensor]) -> UpDownConfig:
    norms = [name for name in ("att_embed.0.running_mean", "att_embed.4.running_mean") if name in weights]
    return UpDownConfig(
        region_width=weights[f"att_embed.{1 if norms else 0}.weight"].shape[1],
        word_size=weights["embed.0.weight"].shape[1],
        hidden_size=weights["core.att_lstm.weight_hh"].shape[1],
        attention_size=len(weights["ctx2att.weight"]),
        mean_of="raw",
        batch_norm=(0, 1, 2)[len(norms)],
    )


def _ours(weights: Mapping[str, Tensor], model: UpDown, homes: Tensor) -> dict[str, Tensor]:
    linear = 1 if model.config.batch_norm else 0
    names = {**_NAMES, "region_embedding": f"att_embed.{linear}"}
    if model.config.batch_norm:
        names["region_norm"] = "att_embed.0"
    if model.config.batch_norm == 2:
        names["embedded_norm"] = "att_embed.4"
    ours = {
        f"{name}.{theirs.removeprefix(prefix + '.')}": tensor
        for name, prefix in names.items()
        for theirs, tensor in weights.items()
        if theirs.startswith(prefix + ".")
    }
    ours["word_embedding.weight"] = _placed(weights["embed.0.weight"], START, homes, model.words, 0.0)
    ours["output.weight"] = _placed(weights["logit.weight"], END, homes, model.words, 0.0)
    ours["output.bias"] = _placed(weights["logit.bias"], END, homes, model.words, NEVER)
    return ours


def _placed(rows: Tensor, zero: int, homes: Tensor, words: int, rest: float) -> Tensor:
    """Rows of their ids at our ids: their row 0 at `zero`, the words at `homes`, `rest` where they have none."""
    placed = torch.full((words, *rows.shape[1:]), rest, dtype=rows.dtype)
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
