"""Checkpoints of the SCAN family: `model_best.pth.tar` of SCAN, POS-SCAN's fork, VSRN and VSE++, with their vocabulary.

The file holds two state dicts, of the image and of the text encoder, and the options. The words are in another file,
which the options do not name: `*_vocab.json` (SCAN) or `*_vocab.pkl` (VSRN, VSE++). Their ids 0 to 3 are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sightline.checkpoint import Checkpoint
from sightline.converters.weights import fill, options
from sightline.data.scan_vocabulary import SPECIAL, read_vocabulary
from sightline.errors import CheckpointError, ConfigError, CountError, DataError
from sightline.models.pos_scan import POSSCANConfig
from sightline.models.scan import SCANConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.models.vsrn import VSRNConfig
from sightline.models.zoo import MatcherConfig
from sightline.text.vocabulary import Vocabulary

Weights = Mapping[str, Tensor]


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
    image, text = content["model"]
    words = _vocabulary(vocabulary)
    if len(text["embed.weight"]) != len(words):
        raise CountError(
            f"the model knows {len(text['embed.weight'])} ids and {vocabulary} lists {len(words)}",
            where=path,
            fix="give the vocabulary the model was trained with",
        )
    told = options(content.get("opt"))
    if told.get("use_abs") or told.get("no_imgnorm") or told.get("no_txtnorm"):
        raise CheckpointError(
            "it was trained with use_abs, no_imgnorm or no_txtnorm", where=path, fix="these cannot be converted"
        )
    config, ours = _vsrn(image, text, path) if "Rs_GCN_1.g.weight" in image else _plain(image, text, told, path)
    model = config.build(len(words))
    fill(model, ours, path, spare=("captioner.",))
    if isinstance(config, VSRNConfig):
        card = {"note": "the captioner of joint training was never released and is not there"}
    else:
        card = {}
    card = {"converted from": f"{config.kind} model_best.pth.tar", "options": told, **card}  # type: ignore[dict-item]
    return Checkpoint(model.eval(), words, "scan", card=card)


def _vsrn(image: Weights, text: Weights, path: Path) -> tuple[MatcherConfig, dict[str, Tensor]]:
    layers = sum(name.endswith(".g.weight") for name in image)
    flickr = "bn.weight" in image
    config = VSRNConfig(
        region_width=image["fc.weight"].shape[1],
        size=len(image["fc.weight"]),
        word_size=text["embed.weight"].shape[1],
        rrr_layers=layers,
        reset="after",
        norm_axis="region",
        early_norm=not flickr,  # the released code treats its two datasets differently
        batch_norm=flickr,
        generation=False,
    )
    ours = {
        **_renamed(image, "fc.", "fc."),
        **_renamed(image, "img_rnn.", "reasoning.rnn."),
        **_renamed(image, "bn.", "norm."),
        **_renamed(text, "embed.", "text.embed."),
        **_renamed(text, "rnn.", "text.rnn."),
    }
    for layer in range(layers):
        for name, tensor in _renamed(image, f"Rs_GCN_{layer + 1}.", f"relations.{layer}.").items():
            ours[name] = tensor.squeeze(-1) if tensor.ndim == 3 else tensor  # a convolution of width 1 is a linear map
    return config, ours


def _plain(image: Weights, text: Weights, told: dict[str, Any], path: Path) -> tuple[MatcherConfig, dict[str, Tensor]]:
    if "cross_attn" not in told:
        if any(name.startswith("cnn.") for name in image):
            raise CheckpointError("it has a CNN of its own", where=path, fix="only *_precomp models can be converted")
        vsepp = VSEPPConfig(
            image="vector",
            vector_width=image["fc.weight"].shape[1],
            size=len(image["fc.weight"]),
            word_size=text["embed.weight"].shape[1],
        )
        return vsepp, {
            **_renamed(image, "fc.", "fc."),
            **_renamed(text, "embed.", "text.embed."),
            **_renamed(text, "rnn.", "text.rnn."),
        }
    common: dict[str, Any] = {
        "direction": told["cross_attn"],
        "region_width": _linear(image)["fc.weight"].shape[1],
        "size": len(image["fc.bias"]),
        "word_size": text["embed.weight"].shape[1],
        "bidirectional": "rnn.weight_ih_l0_reverse" in text,
        "aggregate": {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}[told.get("agg_func", "Mean")],
        "lambda_softmax": float(told.get("lambda_softmax", 9.0)),
        "lambda_lse": float(told.get("lambda_lse", 6.0)),
        "raw_feature_norm": told.get("raw_feature_norm", "clipped_l2norm"),
        "clip": "leaky",
    }
    config: MatcherConfig = POSSCANConfig(**common) if told.get("pos") else SCANConfig(**common)
    return config, {
        **_renamed(_linear(image), "fc.", "image."),
        **_renamed(text, "embed.", "text.embedding."),
        **_renamed(text, "rnn.", "text.gru."),
    }


def _linear(image: Weights) -> dict[str, Tensor]:
    """The image encoder with its weight norm, if it has one, multiplied out."""
    plain = {name: tensor for name, tensor in image.items() if name not in ("fc.weight_g", "fc.weight_v")}
    if "fc.weight_v" in image:
        scale, direction = image["fc.weight_g"], image["fc.weight_v"]
        if scale.ndim < 2:  # one length for the whole matrix
            plain["fc.weight"] = direction * (scale / direction.norm())
        else:
            plain["fc.weight"] = direction * (scale / direction.norm(dim=1, keepdim=True))
    return plain


def _renamed(weights: Weights, theirs: str, ours: str) -> dict[str, Tensor]:
    return {ours + name.removeprefix(theirs): t for name, t in weights.items() if name.startswith(theirs)}


def _vocabulary(path: Path) -> Vocabulary:
    words = read_vocabulary(path)
    if tuple(words[:4]) != SPECIAL:
        raise DataError(
            f"its first words are {', '.join(words[:4])}, not {', '.join(SPECIAL)}",
            where=path,
            fix="give a vocabulary of SCAN, VSRN or VSE++",
        )
    return Vocabulary(words[4:])
