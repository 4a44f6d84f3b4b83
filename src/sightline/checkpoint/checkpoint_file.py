"""Files of weights with a description, sealed by checksums: what checkpoints and bundles are made of.

A file is safetensors; its header holds the description as JSON. Nothing in it can run code, and a flipped bit in either
is noticed. Models are built without weights first, so that a wrong size takes no memory.

Weights may be stored in few bits (`pack`): int8 keeps each row of a matrix as whole numbers from -127 to 127 times the
row's scale (symmetric; weights become float32 again when they are read). A depthwise convolution has too few numbers in
a row for that, and small tensors too few to matter: both are float16, and so is all else, unless a number is beyond
what float16 can hold.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import IO, Any, Literal, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sightline.config import build
from sightline.errors import CheckpointError, ConfigError, is_out_of_memory
from sightline.files import PathLike, atomic_write, checksum, existing_path, refuse_special

Precision = Literal["int8", "float16", "float32"]
FileKind = Literal["checkpoint", "bundle"]
Module = TypeVar("Module", bound=nn.Module)
Header = TypeVar("Header")
LAYOUT = 1  # of the description; a file of another layout is refused
SCALE = ":scale"  # after the name of an int8 tensor; no module's name has a colon
SMALL = 4096  # tensors of fewer numbers stay float16
CALLS = 100  # of PyTorch for a tensor of a model, at most: the models here take 4 to 15
USES = {
    "checkpoint": "`sightline caption --model`, `sightline evaluate` and "
    "`sightline.checkpoint.model_checkpoint.load` read it",
    "bundle": "`sightline caption --model` and `sightline.load` read it",
}


def write_file(path: PathLike, weights: dict[str, Tensor], header: Any, holds: FileKind) -> None:
    """Write weights and their description, a dataclass; the file is whole or not there."""
    description = {"layout": LAYOUT, **asdict(header), "holds": holds, "checksum": checksum_of(weights)}
    text = json.dumps(description, ensure_ascii=False)
    with atomic_write(path) as file:
        write_tensors(file, weights, {"sightline": text, "checksum": str(checksum(text.encode()))})


def write_tensors(file: IO[bytes], tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file whose bytes follow from its contents: the library writes metadata in any order."""
    raw = memoryview(save(tensors, metadata))
    start = 8 + int.from_bytes(raw[:8], "little")  # the length of the header, the header, the numbers
    header = json.loads(bytes(raw[8:start]))
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of 8 bytes
    file.write(len(text).to_bytes(8, "little") + text)
    file.write(raw[start:])


def read_description(path: PathLike, holds: FileKind) -> dict[str, Any]:
    """The description of a file, without its weights and without `holds`; an error where it holds something else."""
    description = _description(path, holds)
    layout, kind = description["layout"], description.pop("holds")
    if kind != holds:
        use = USES.get(str(kind), "use the version of Sightline that saved it")
        raise CheckpointError(f"this is a {kind}, and a {holds} was expected", where=path, fix=use)
    if layout != LAYOUT:
        what = f"it was saved in layout {layout}, and this version reads layout {LAYOUT}"
        raise CheckpointError(what, where=path, fix="use the version of Sightline that saved it, or save it again")
    return description


def read_file(path: PathLike, header: type[Header], holds: FileKind) -> tuple[Header, dict[str, Tensor]]:
    """What `write_file` wrote: the description as a dataclass, and the weights."""
    description = read_description(path, holds)
    expected = description.pop("checksum", None)
    try:
        built = build(header, {name: description[name] for name in description if name != "layout"}, where=str(path))
    except ConfigError as error:
        what = f"this version cannot read its {'models' if holds == 'bundle' else 'model'}: {error.what}"
        raise CheckpointError(what, where=path, fix="use the version that saved it") from error
    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    if checksum_of(weights) != expected:
        what = "its weights are damaged (they do not have the checksum of its description)"
        raise CheckpointError(what, where=path, fix="copy or download the file again")
    return built, weights


def kind_of_file(path: PathLike) -> str:
    """What a file holds: checkpoint or bundle."""
    return str(_description(path, "model")["holds"])


def _description(path: PathLike, wanted: str) -> dict[str, Any]:
    if not (target := existing_path(path)).is_dir():
        refuse_special(target)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        fix = "give a file that Sightline saved; `sightline convert` reads checkpoints of other projects"
        raise CheckpointError(f"not a Sightline {wanted} ({error})", where=path, fix=fix) from error
    text = metadata.get("sightline", "")
    if text and metadata.get("checksum") != str(checksum(text.encode())):
        raise CheckpointError("its description is damaged", where=path, fix="copy or download the file again")
    try:
        description: dict[str, Any] = json.loads(text)
        return {"holds": "checkpoint", **description, "layout": description["layout"]}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        what = "the file holds weights but not Sightline's description of them"
        raise CheckpointError(what, where=path, fix="give a file that Sightline saved") from error


@contextlib.contextmanager
def weights_must_fit(path: PathLike) -> Iterator[None]:
    """What goes wrong in here is the fault of a description that does not fit the weights of the file."""
    # ArithmeticError is for sizes that no tensor can have, or that are nothing.
    wrong = (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
    try:
        yield
    except ConfigError as error:
        what = f"its config cannot be used: {error.what}"
        raise CheckpointError(what, where=path, fix="use the version that saved it") from error
    except wrong as error:
        what, fix = f"its weights do not fit its config: {error}", "save the model again"
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            what, fix = f"there is not enough memory for its weights ({error})", "close other programs"
        raise CheckpointError(what, where=path, fix=fix) from error


class _NoDraws(TorchFunctionMode):
    """First weights are not drawn. (`normal_` on the meta device would import PyTorch's compiler, for seconds.)

    A model that takes more than `calls` calls of PyTorch to build is refused: 100,000,000 layers are a few bytes of a
    config, and take gigabytes though they have no weights.
    """

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._calls_left = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._calls_left -= 1
        # An error in here on the way out of `torch.no_grad` would leave gradients switched off for the whole process.
        if self._calls_left < 0 and func.__name__ != "_set_grad_enabled":
            raise RuntimeError("it asks for far more layers than there are weights")
        if func.__name__ in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def meta_init(tensors: int = 10_000) -> Iterator[None]:
    """Models built in here have shapes only, so that sizes take no memory until weights prove to have them.

    `tensors` is how many there are for the model; by default many more than any has.
    """
    with torch.device("meta"), _NoDraws(CALLS * tensors + 10_000):
        yield


def build_model(make: Callable[[], Module], weights: Mapping[str, Tensor]) -> Module:
    with meta_init(len(weights)):
        model = make()
    assign(model, weights)
    return model


def assign(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give copies of `weights` to a `meta_init` model; a RuntimeError where they do not fit.

    Everything such a model holds must be in its state dict: what it computes when built is never computed there.
    """
    types = {name: part.dtype for name, part in model.state_dict().items()}
    copies = {
        name: part.to(types.get(name, part.dtype), copy=True, memory_format=torch.contiguous_format)
        for name, part in weights.items()
    }
    model.load_state_dict(copies, assign=True)


def plain(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model as files hold them: on the CPU, each in one piece."""
    return {name: part.detach().cpu().contiguous() for name, part in model.state_dict().items()}


def checksum_of(weights: dict[str, Tensor]) -> int:
    """One number for tensors with their names, to notice damage."""
    total = 0
    for name in sorted(weights):
        data = weights[name].contiguous().flatten().view(torch.uint8).numpy()
        total = checksum(f"{total} {name} {checksum(data.data)}".encode())
    return total


def pack(weights: Mapping[str, Tensor], precision: Precision) -> dict[str, Tensor]:
    """The tensors as a file of this precision holds them: see the module for the rule."""
    packed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            packed[name] = tensor
        elif precision == "int8" and tensor.ndim > 1 and tensor.shape[1] > 1 and tensor.numel() >= SMALL:
            packed[name], packed[name + SCALE] = quantise(tensor.float())
        else:
            half = tensor.half()
            fits = precision != "float32" and bool(half.isfinite().all())
            packed[name] = half if fits else tensor.float()
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that were packed, as float32; whole numbers as they were."""
    weights: dict[str, Tensor] = {}
    for name, tensor in packed.items():
        if name.endswith(SCALE):
            continue
        scale = packed.get(name + SCALE)
        if scale is not None:
            tensor = tensor.float().mul_(scale.view(-1, *[1] * (tensor.ndim - 1)))
        weights[name] = tensor.float() if tensor.is_floating_point() else tensor
    return weights


def quantise(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """(outputs, …) to int8 of the same shape and the scale (outputs,) of each row; a row of zeros has the scale 0."""
    rows = tensor.flatten(1)
    scale = rows.abs().amax(1) / 127
    rounded = torch.where(scale[:, None] > 0, rows / scale[:, None], 0).round_()
    return rounded.clamp_(-127, 127).to(torch.int8).view(tensor.shape), scale
