"""Released checkpoints of other projects, recognised by what they hold, as Sightline checkpoints.

Up-Down of self-critical.pytorch and Grounded-Image-Captioning is `model.pth` with `infos_<id>.pkl`. There id 0 begins,
ends and pads a caption, words count from 1 and `UNK` comes last. Here each has an id of its own, so the rows of the
embedding and of the output layer move; ids that the model never says get a probability of zero.

SCAN, POS-SCAN's fork, VSRN and VSE++ are `model_best.pth.tar`: two state dicts, of the image and of the text encoder,
and the options. The words are in another file, which the options do not name: `*_vocab.json` (SCAN) or `*_vocab.pkl`
(VSRN, VSE++). Their ids 0 to 3 are ours.
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
from sightline.data.pickle_formats import SPECIAL, read_vocabulary
from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, load_path
from sightline.errors import CheckpointError, ConfigError, CountError, DataError, MissingRecordError
from sightline.files import PathLike
from sightline.models.model_configs import MatcherConfig
from sightline.models.pos_scan import POSSCANConfig
from sightline.models.scan import SCANConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.models.vsrn import VSRNConfig
from sightline.text.vocabulary import END, START, UNK, Vocabulary

READS = (
    "Up-Down of self-critical.pytorch and Grounded-Image-Captioning (model.pth + infos.pkl); "
    "SCAN, POS-SCAN, VSRN and VSE++ (model_best.pth.tar + vocabulary)"
)
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
_SENTENCE = {"embed.": "text.embed.", "rnn.": "text.rnn."}
_AGGREGATES: dict[Any, Any] = {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}


def convert_foreign(path: PathLike, *, infos: Path | None = None, vocabulary: Path | None = None) -> Checkpoint:
    """Read a released checkpoint without running it.

    Args:
        path: `model.pth` or `model_best.pth.tar`.
        infos: the `infos_<id>.pkl` of an Up-Down model; by default the one that lies beside it.
        vocabulary: the word list of a matcher, JSON or pickle.
    """
    content = _read_weights(Path(path))
    if _is_matcher(content):
        return _convert_matcher(content, Path(path), vocabulary)
    if isinstance(content, Mapping) and _is_updown(content):
        return _convert_updown(content, Path(path), infos)
    raise CheckpointError("no released model that can be converted", where=path, fix=f"these can: {READS}")


def _read_weights(path: Path) -> Any:
    """The content of a checkpoint; a state dict saved from several GPUs loses its `module.` prefix."""
    content = read_torch(path)
    if isinstance(content, Mapping) and content and all(str(name).startswith("module.") for name in content):
        return {str(name).removeprefix("module."): value for name, value in content.items()}
    return content


def _is_updown(weights: Mapping[str, Any]) -> bool:
    """Whether a state dict has the names of this Up-Down."""
    return "core.att_lstm.weight_ih" in weights and "ctx2att.weight" in weights


def _convert_updown(content: Mapping[str, Any], path: Path, infos: Path | None) -> Checkpoint:
    """The checkpoint of a state dict, with the words of its `infos` file."""
    infos = infos or _infos_beside(path)
    told = load_path(infos, {**CONTAINERS, **NUMBERS})
    if not isinstance(told, dict) or not isinstance(told.get("vocab"), Mapping):
        raise DataError("no `vocab` in it", where=infos, fix="give the infos_<id>.pkl that was saved with the model")
    words = _updown_words(told["vocab"], infos)
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
    config = _updown_config(weights, path)
    ours = rename_tensors(weights, {**_NAMES, **_REGIONS[config.batch_norm]}, path)
    for name, zero, rest in _BY_WORD:
        part = need(ours, name, path)
        if part.shape[:1] != (rows,):
            raise CheckpointError(f"`{name}` has not {rows} rows", where=path, fix="check that it is the whole model")
        ours[name] = _placed(part, zero, homes, len(vocabulary), rest)
    card = {"converted from": "self-critical Up-Down", "options": options(told.get("opt"))}
    return Checkpoint(fill_model(config, len(vocabulary), ours, path), vocabulary, "self-critical", card=card)


def _updown_config(weights: Weights, path: Path) -> UpDownConfig:
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


def _updown_words(vocab: Mapping[Any, Any], where: Path) -> list[str]:
    by_id = {str(key): word for key, word in vocab.items()}
    found = [by_id.get(str(number)) for number in range(1, len(by_id) + 1)]
    for number, word in enumerate(found, start=1):
        if not isinstance(word, str):
            raise DataError(f"no word has id {number}", where=where, fix="ids must run from 1 without gaps")
    return [str(word) for word in found]


def _infos_beside(path: Path) -> Path:
    found = sorted(path.parent.glob("infos*.pkl"))
    best = [one for one in found if one.stem.endswith("-best") == path.stem.endswith("-best")]
    if len(best or found) == 1:
        return (best or found)[0]
    raise MissingRecordError(
        f"{'several infos files lie' if found else 'no infos file lies'} beside it, and the words are in one of them",
        where=path,
        fix="name it: --infos infos_<id>.pkl",
    )


def _is_matcher(content: Any) -> bool:
    """Whether a file's content is the checkpoint of a matcher."""
    if not isinstance(content, Mapping):
        return False
    parts = content.get("model")
    return isinstance(parts, (list, tuple)) and len(parts) == 2 and all(isinstance(part, Mapping) for part in parts)


def _convert_matcher(content: Mapping[str, Any], path: Path, vocabulary: Path | None) -> Checkpoint:
    """The checkpoint, with the words of the vocabulary file."""
    if vocabulary is None:
        raise ConfigError(
            "the words of this model are in a file of their own",
            where=path,
            fix="name it: --vocabulary f30k_precomp_vocab.json (or .pkl)",
        )
    image, text = (tensors(part, path) for part in content["model"])
    words = _vocabulary(vocabulary)
    rows = len(matrix(text, "embed.weight", path))
    if rows != len(words):
        raise CountError(
            f"the model knows {rows} ids and {vocabulary} lists {len(words)}",
            where=path,
            fix="give the vocabulary the model was trained with",
        )
    told = options(content.get("opt"))
    for name in ("use_abs", "no_imgnorm", "no_txtnorm"):
        if told.get(name):
            raise CheckpointError(f"it was trained with {name}", where=path, fix="this cannot be converted")
    if told.get("measure") == "order":
        raise CheckpointError("its measure is order, not cosine", where=path, fix="this cannot be converted")
    config, ours = _read_matcher(image, text, told, path)
    card = {"converted from": f"{config.kind} model_best.pth.tar", "options": told}
    if isinstance(config, VSRNConfig):
        card["note"] = "the captioner of joint training was never released and is not there"
    return Checkpoint(fill_model(config, len(words), ours, path), words, "scan", card=card)


def _read_matcher(
    image: Weights, text: Weights, told: dict[str, Any], path: Path
) -> tuple[MatcherConfig, dict[str, Tensor]]:
    """The config, and the weights under our names."""
    if "Rs_GCN_1.g.weight" in image:
        return _vsrn(image, text, path)
    if "cross_attn" in told:
        return _scan(image, text, told, path)
    return _vsepp(image, text, path)


def _vsrn(image: Weights, text: Weights, path: Path) -> tuple[MatcherConfig, dict[str, Tensor]]:
    layers = sum(name.endswith(".g.weight") for name in image)
    flickr = "bn.weight" in image
    size, region_width = matrix(image, "fc.weight", path).shape
    config = VSRNConfig(
        region_width=region_width,
        size=size,
        word_size=text["embed.weight"].shape[1],
        rrr_layers=layers,
        reset="after",
        memory="default",
        norm_axis="region",
        early_norm=not flickr,  # the released code treats its two datasets differently
        batch_norm=flickr,
        generation=False,
    )
    relations = {f"Rs_GCN_{layer + 1}.": f"relations.{layer}." for layer in range(layers)}
    rules = {"fc.": "fc.", "img_rnn.": "reasoning.rnn.", "bn.": "norm.", **relations}
    ours = {  # a convolution of width 1 is a linear map
        name: tensor.squeeze(-1) if tensor.ndim == 3 else tensor
        for name, tensor in rename_tensors(image, rules, path).items()
    }
    return config, {**ours, **rename_tensors(text, _SENTENCE, path)}


def _vsepp(image: Weights, text: Weights, path: Path) -> tuple[MatcherConfig, dict[str, Tensor]]:
    if any(name.startswith("cnn.") for name in image):
        raise CheckpointError("it has a CNN of its own", where=path, fix="only *_precomp models can be converted")
    size, vector_width = matrix(image, "fc.weight", path).shape
    word_size = text["embed.weight"].shape[1]
    config = VSEPPConfig(image="vector", vector_width=vector_width, size=size, word_size=word_size, memory="default")
    return config, {**rename_tensors(image, {"fc.": "fc."}, path), **rename_tensors(text, _SENTENCE, path)}


def _scan(image: Weights, text: Weights, told: dict[str, Any], path: Path) -> tuple[MatcherConfig, dict[str, Tensor]]:
    image = _without_weight_norm(image, path)
    size, region_width = matrix(image, "fc.weight", path).shape
    aggregate = told.get("agg_func", "Mean")
    try:
        config = (POSSCANConfig if told.get("pos") else SCANConfig)(
            direction=told["cross_attn"],
            region_width=region_width,
            size=size,
            word_size=text["embed.weight"].shape[1],
            bidirectional="rnn.weight_ih_l0_reverse" in text,
            aggregate=_AGGREGATES.get(aggregate, aggregate),
            lambda_softmax=float(told.get("lambda_softmax", 9.0)),
            lambda_lse=float(told.get("lambda_lse", 6.0)),
            raw_feature_norm=told.get("raw_feature_norm", "clipped_l2norm"),
            clip="leaky",
        )
    except (ConfigError, ValueError) as error:
        what = error.what if isinstance(error, ConfigError) else str(error)
        raise CheckpointError(f"its options: {what}", where=path, fix="these cannot be converted") from error
    rules = {"embed.": "text.embedding.", "rnn.": "text.gru."}
    return config, {**rename_tensors(image, {"fc.": "image."}, path), **rename_tensors(text, rules, path)}


def _without_weight_norm(image: Weights, path: Path) -> Weights:
    """The image encoder with its weight norm, if it has one, multiplied out."""
    if "fc.weight_v" not in image:
        return image
    plain = {name: tensor for name, tensor in image.items() if name not in ("fc.weight_g", "fc.weight_v")}
    scale, direction = need(image, "fc.weight_g", path), matrix(image, "fc.weight_v", path)
    if scale.shape == (len(direction), 1):
        length = direction.norm(dim=1, keepdim=True)
    elif scale.numel() == 1:  # of the whole matrix
        length = direction.norm()
    else:
        raise CheckpointError(f"`fc.weight_g` has shape {tuple(scale.shape)}", where=path, fix="copy it again")
    return {**plain, "fc.weight": direction * (scale / length)}


def _vocabulary(path: Path) -> Vocabulary:
    words = read_vocabulary(path)
    if tuple(words[:4]) != SPECIAL:
        raise DataError(
            f"its first words are {', '.join(words[:4])}, not {', '.join(SPECIAL)}",
            where=path,
            fix="give a vocabulary of SCAN, VSRN or VSE++",
        )
    return Vocabulary(words[4:])
