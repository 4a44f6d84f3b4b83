"""Released checkpoints of other projects, recognised by what they hold, as Sightline checkpoints.

Up-Down of self-critical.pytorch and Grounded-Image-Captioning is `model.pth` with `infos_<id>.pkl`. There id 0 begins,
ends and pads a caption, words count from 1 and `UNK` comes last. Here each has an id of its own, so the rows of the
embedding and of the output layer move; ids that the model never says get a probability of zero.

SCAN, POS-SCAN's fork, VSRN and VSE++ are `model_best.pth.tar`: two state dicts, of the image and of the text encoder,
and the options. The words are in another file, which the options do not name: `*_vocab.json` (SCAN) or `*_vocab.pkl`
(VSRN, VSE++). Their ids 0 to 3 are ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline.checkpoint.checkpoint_file import assign, meta_init
from sightline.checkpoint.model_checkpoint import Checkpoint
from sightline.checkpoint.torch_file import read_torch
from sightline.data.pickle_formats import SPECIAL, read_vocabulary
from sightline.data.restricted_pickle import CONTAINERS, NUMBERS, Namespace, load_path
from sightline.errors import CheckpointError, ConfigError, CountError, DataError, MissingRecordError, about
from sightline.files import PathLike
from sightline.models.model_configs import MatcherConfig
from sightline.models.scan import POSSCANConfig, SCANConfig
from sightline.models.updown import UpDownConfig
from sightline.models.vsepp import VSEPPConfig
from sightline.models.vsrn import VSRNConfig
from sightline.text.vocabulary import END, START, UNK, Vocabulary

READS = (
    "Up-Down of self-critical.pytorch and Grounded-Image-Captioning (model.pth + infos.pkl); "
    "SCAN, POS-SCAN, VSRN and VSE++ (model_best.pth.tar + vocabulary)"
)
NEVER = -1e4  # a logit whose probability is 0 in float32 and bfloat16
REPORT = "check that it is the whole model; if it is, the converter does not know one of its parts: please report it"
COUNTER = "num_batches_tracked"  # of a batch norm: PyTorch before 0.4.1 had none, and nothing here reads it

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
# Tensors with a row a word: which of our ids takes the row of their id 0, and what ids get that they do not have.
_BY_WORD = (("word_embedding.weight", START, 0.0), ("output.weight", END, 0.0), ("output.bias", END, NEVER))
_SENTENCE = {"embed.": "text.embed.", "rnn.": "text.rnn."}
_AGGREGATES: dict[Any, Any] = {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}


Weights = Mapping[str, Tensor]


def convert_foreign(path: PathLike, *, infos: Path | None = None, vocabulary: Path | None = None) -> Checkpoint:
    """Read a released checkpoint without running it.

    Args:
        path: `model.pth` or `model_best.pth.tar`.
        infos: the `infos_<id>.pkl` of an Up-Down model; by default the one that lies beside it.
        vocabulary: the word list of a matcher, JSON or pickle.
    """
    content = read_torch(path)
    if isinstance(content, Mapping) and content and all(str(name).startswith("module.") for name in content):
        content = {str(name).removeprefix("module."): value for name, value in content.items()}  # of several GPUs
    with about(path):
        if isinstance(content, Mapping):
            parts = content.get("model")
            if isinstance(parts, (list, tuple)) and [isinstance(part, Mapping) for part in parts] == [True, True]:
                return _convert_matcher(content, vocabulary)
            if "core.att_lstm.weight_ih" in content and "ctx2att.weight" in content:
                return _convert_updown(content, infos or _infos_beside(Path(path)))
        raise CheckpointError("no released model that can be converted", fix=f"these can: {READS}")


def _convert_updown(content: Mapping[str, Any], infos: Path) -> Checkpoint:
    saved = load_path(infos, {**CONTAINERS, **NUMBERS})
    if not isinstance(saved, dict) or not isinstance(saved.get("vocab"), Mapping):
        raise DataError("no `vocab` in it", where=infos, fix="give the infos_<id>.pkl that was saved with the model")
    words = _updown_words(saved["vocab"], infos)
    weights = _tensors(content)
    if "logit.weight" not in weights:
        raise CheckpointError("its output has several layers", fix="only `logit_layers` 1 can be converted")
    rows = len(_matrix(weights, "logit.weight"))
    if rows != len(words) + 1:
        raise CountError(f"the model says {rows - 1} words and {infos} lists {len(words)}", fix="give matching files")
    vocabulary = Vocabulary(word for word in words if word != "UNK")
    ids = torch.tensor([UNK if word == "UNK" else vocabulary.id(word) for word in words])
    norms = sum(f"att_embed.{layer}.running_mean" in weights for layer in (0, 4))
    config = UpDownConfig(
        region_width=_matrix(weights, f"att_embed.{1 if norms else 0}.weight").shape[1],
        word_size=_matrix(weights, "embed.0.weight").shape[1],
        hidden_size=_matrix(weights, "core.att_lstm.weight_hh").shape[1],
        attention_size=len(_matrix(weights, "ctx2att.weight")),
        mean_of="raw",
        batch_norm=(0, 1, 2)[norms],
    )
    ours = _rename(weights, {**_NAMES, **_REGIONS[norms]})
    for name, id_of_zero, default in _BY_WORD:
        part = _need(ours, name)
        if part.shape[:1] != (rows,):
            raise CheckpointError(f"`{name}` has not {rows} rows", fix="check that it is the whole model")
        ours[name] = torch.full((len(vocabulary), *part.shape[1:]), default, dtype=part.dtype)
        ours[name][id_of_zero] = part[0]
        ours[name][ids] = part[1:]
    card = {"converted from": "self-critical Up-Down", "options": _options(saved.get("opt"))}
    return _fill(config, vocabulary, ours, "self-critical", card)


def _updown_words(vocab: Mapping[Any, Any], where: Path) -> list[str]:
    by_id = {str(key): word for key, word in vocab.items()}
    words: list[str] = []
    for number in range(1, len(by_id) + 1):
        word = by_id.get(str(number))
        if not isinstance(word, str):
            raise DataError(f"no word has id {number}", where=where, fix="ids must run from 1 without gaps")
        words.append(word)
    return words


def _infos_beside(path: Path) -> Path:
    files = sorted(path.parent.glob("infos*.pkl"))
    alike = [file for file in files if file.stem.endswith("-best") == path.stem.endswith("-best")]
    if len(alike or files) == 1:
        return (alike or files)[0]
    what = f"{'several infos files lie' if files else 'no infos file lies'} beside it, and the words are in one of them"
    raise MissingRecordError(what, fix="name it: --infos infos_<id>.pkl")


def _convert_matcher(content: Mapping[str, Any], vocabulary: Path | None) -> Checkpoint:
    if vocabulary is None:
        what = "the words of this model are in a file of their own"
        raise ConfigError(what, fix="name it: --vocabulary f30k_precomp_vocab.json (or .pkl)")
    image, text = (_tensors(part) for part in content["model"])
    listed = read_vocabulary(vocabulary)
    if tuple(listed[:4]) != SPECIAL:
        what = f"its first words are {', '.join(listed[:4])}, not {', '.join(SPECIAL)}"
        raise DataError(what, where=vocabulary, fix="give a vocabulary of SCAN, VSRN or VSE++")
    words = Vocabulary(listed[4:])
    rows = len(_matrix(text, "embed.weight"))
    if rows != len(words):
        what = f"the model knows {rows} ids and {vocabulary} lists {len(words)}"
        raise CountError(what, fix="give the vocabulary the model was trained with")
    options = _options(content.get("opt"))
    for name in ("use_abs", "no_imgnorm", "no_txtnorm"):
        if options.get(name):
            raise CheckpointError(f"it was trained with {name}", fix="this cannot be converted")
    if options.get("measure") == "order":
        raise CheckpointError("its measure is order, not cosine", fix="this cannot be converted")
    notes = {}
    if "Rs_GCN_1.g.weight" in image:
        config, ours = _vsrn(image, text)
        notes["note"] = "the captioner of joint training was never released and is not there"
    elif "cross_attn" in options:
        config, ours = _scan(image, text, options)
    else:
        config, ours = _vsepp(image, text)
    card = {"converted from": f"{config.kind} model_best.pth.tar", "options": options, **notes}
    return _fill(config, words, ours, "scan", card)


def _vsrn(image: Weights, text: Weights) -> tuple[MatcherConfig, dict[str, Tensor]]:
    layers = sum(name.endswith(".g.weight") for name in image)
    flickr = "bn.weight" in image
    size, region_width = _matrix(image, "fc.weight").shape
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
    ours = _rename(image, {"fc.": "fc.", "img_rnn.": "reasoning.rnn.", "bn.": "norm.", **relations})
    for name, part in ours.items():
        ours[name] = part.squeeze(-1) if part.ndim == 3 else part  # convolutions of width 1
    return config, {**ours, **_rename(text, _SENTENCE)}


def _vsepp(image: Weights, text: Weights) -> tuple[MatcherConfig, dict[str, Tensor]]:
    if any(name.startswith("cnn.") for name in image):
        raise CheckpointError("it has a CNN of its own", fix="only *_precomp models can be converted")
    size, vector_width = _matrix(image, "fc.weight").shape
    word_size = text["embed.weight"].shape[1]
    config = VSEPPConfig(image="vector", vector_width=vector_width, size=size, word_size=word_size, memory="default")
    return config, {**_rename(image, {"fc.": "fc."}), **_rename(text, _SENTENCE)}


def _scan(image: Weights, text: Weights, options: dict[str, Any]) -> tuple[MatcherConfig, dict[str, Tensor]]:
    image = _without_weight_norm(image)
    size, region_width = _matrix(image, "fc.weight").shape
    aggregate = options.get("agg_func", "Mean")
    try:
        config = (POSSCANConfig if options.get("pos") else SCANConfig)(
            direction=options["cross_attn"],
            region_width=region_width,
            size=size,
            word_size=text["embed.weight"].shape[1],
            bidirectional="rnn.weight_ih_l0_reverse" in text,
            aggregate=_AGGREGATES.get(aggregate, aggregate),
            lambda_softmax=float(options.get("lambda_softmax", 9.0)),
            lambda_lse=float(options.get("lambda_lse", 6.0)),
            raw_feature_norm=options.get("raw_feature_norm", "clipped_l2norm"),
            clip="leaky",
        )
    except (ConfigError, ValueError) as error:
        what = error.what if isinstance(error, ConfigError) else str(error)
        raise CheckpointError(f"its options: {what}", fix="these cannot be converted") from error
    rules = {"embed.": "text.embedding.", "rnn.": "text.gru."}
    return config, {**_rename(image, {"fc.": "image."}), **_rename(text, rules)}


def _without_weight_norm(image: Weights) -> Weights:
    """The image encoder with its weight norm, if it has one, multiplied out."""
    if "fc.weight_v" not in image:
        return image
    plain = {name: tensor for name, tensor in image.items() if name not in ("fc.weight_g", "fc.weight_v")}
    scale, direction = _need(image, "fc.weight_g"), _matrix(image, "fc.weight_v")
    if scale.shape == (len(direction), 1):
        length = direction.norm(dim=1, keepdim=True)
    elif scale.numel() == 1:  # of the whole matrix
        length = direction.norm()
    else:
        raise CheckpointError(f"`fc.weight_g` has shape {tuple(scale.shape)}", fix="copy it again")
    return {**plain, "fc.weight": direction * (scale / length)}


def _tensors(weights: Mapping[Any, Any]) -> dict[str, Tensor]:
    """A state dict, once it is known to hold tensors alone."""
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise CheckpointError(f"`{name}` is no tensor", fix="give the state dict of a whole model")
    return dict(weights)


def _need(weights: Weights, name: str) -> Tensor:
    if name not in weights:
        raise CheckpointError(f"it has no `{name}`", fix="check that it is the whole model")
    return weights[name]


def _matrix(weights: Weights, name: str) -> Tensor:
    """The matrix called `name`, from whose shape sizes are read."""
    matrix = _need(weights, name)
    if matrix.ndim != 2 or not matrix.numel():
        what = f"`{name}` has shape {tuple(matrix.shape)} and is no matrix"
        raise CheckpointError(what, fix="copy or download it again")
    return matrix


def _rename(weights: Weights, rules: Mapping[str, str]) -> dict[str, Tensor]:
    """All weights under our names; `rules` give, for the beginning of their names, the beginning of ours."""
    ours = {}
    for name, tensor in weights.items():
        prefix = next((theirs for theirs in rules if name.startswith(theirs)), None)
        if prefix is not None:
            ours[rules[prefix] + name.removeprefix(prefix)] = tensor
        elif not name.endswith(COUNTER):
            raise CheckpointError(f"`{name}` has no place in the model it seems to be", fix=REPORT)
    return ours


def _fill(
    config: UpDownConfig | MatcherConfig, words: Vocabulary, weights: Weights, rule: str, card: dict[str, Any]
) -> Checkpoint:
    """The model of `config` with these weights, our names: each must find its place, and each place its weight."""
    try:
        with meta_init(len(weights)):
            model = config.build(len(words))
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"no model can have its sizes: {error}", fix="only use files you trust") from error
    names = model.state_dict().keys()
    counters = {name: torch.zeros((), dtype=torch.long) for name in names if name.endswith(COUNTER)}
    fitting = {name: tensor for name, tensor in weights.items() if name in names or not name.endswith(COUNTER)}
    try:
        assign(model, {**counters, **fitting})
    except RuntimeError as error:  # a line for what is missing, one for what is too much, then for each wrong size
        problems = "; ".join(line.strip()[:200] for line in str(error).splitlines()[1:4])
        what = f"its weights do not fit {config.kind}, which it seems to be: {problems or error}"
        raise CheckpointError(what, fix=REPORT) from error
    return Checkpoint(model.eval(), words, rule, card=card)


def _options(namespace: Any) -> dict[str, Any]:
    """The options a model was trained with, as far as they are plain values."""
    if not isinstance(namespace, Namespace):
        return {}
    return {name: value for name, value in vars(namespace).items() if _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() < 64  # Python refuses to print numbers of thousands of digits
    return isinstance(value, (float, str))
