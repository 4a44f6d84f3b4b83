"""Checkpoints of the SCAN family: `model_best.pth.tar` of SCAN, POS-SCAN's fork, VSRN and VSE++, with their vocabulary.

The file holds two state dicts, of the image and of the text encoder, and the options. The words are in another file,
which the options do not name: `*_vocab.json` (SCAN) or `*_vocab.pkl` (VSRN, VSE++). Their ids 0 to 3 are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sightline.checkpoint.foreign_weights import Weights, fill_model, matrix, need, options, rename_tensors, tensors
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.data.pickle_formats import SPECIAL, read_vocabulary
from sightline.errors import CheckpointError, ConfigError, CountError, DataError
from sightline.models.model_configs import MatcherConfig
from sightline.models.pos_scan import POSSCANConfig
from sightline.models.scan import SCANConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.models.vsrn import VSRNConfig
from sightline.text.vocabulary import Vocabulary

_SENTENCE = {"embed.": "text.embed.", "rnn.": "text.rnn."}
_AGGREGATES: dict[Any, Any] = {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}


def is_matcher(content: Any) -> bool:
    """Whether a file's content is the checkpoint of a matcher."""
    if not isinstance(content, Mapping):
        return False
    parts = content.get("model")
    return isinstance(parts, (list, tuple)) and len(parts) == 2 and all(isinstance(part, Mapping) for part in parts)


def convert_matcher(content: Mapping[str, Any], path: Path, vocabulary: Path | None) -> Checkpoint:
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
    config, ours = _read(image, text, told, path)
    card = {"converted from": f"{config.kind} model_best.pth.tar", "options": told}
    if isinstance(config, VSRNConfig):
        card["note"] = "the captioner of joint training was never released and is not there"
    return Checkpoint(fill_model(config, len(words), ours, path), words, "scan", card=card)


def _read(image: Weights, text: Weights, told: dict[str, Any], path: Path) -> tuple[MatcherConfig, dict[str, Tensor]]:
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
    image = _linear(image, path)
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


def _linear(image: Weights, path: Path) -> Weights:
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
