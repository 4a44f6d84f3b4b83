"""A model for inference on a CPU whose large matrix products are of 8-bit integers.

A word of one photo is a product of a few rows with all the weights, which takes as long as reading the weights takes: a
quarter of the bytes are read four times as soon. Weights are rounded once, by the largest of each of their rows, inputs
at each call ("dynamic quantisation"), also each row by its own largest: so photos that are looked at together do not
change each other's numbers but by the last digit of float32, which tips a rounding now and then. Sums and results are
float32. The products of a word's few rows in the layers of a decoder stay float32, with the weights laid out in memory
as oneDNN reads them (`PackedLinear`): PyTorch's general product of so few rows is bound by how it reads the weights.
Such a product takes some 50 µs, and calling a module 5: so a layer reads a word by the products alone
(`PackedDecoderLayer`).
"""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.devices import has_vnni
from sightline.models.transformer_decoder import DecoderLayer, KeysValues, TransformerCaptioner

ROWS = 4  # that the layout of packed weights is chosen for, about a beam of 3; more are right, too
SMALLEST = 1 << 12  # weights that a product has at least: smaller ones are quick as they are
PLAIN: tuple[str, list[float], str] = ("none", [], "")  # what oneDNN does after a product
RELU: tuple[str, list[float], str] = ("relu", [], "")
M = TypeVar("M", bound=nn.Module)


def with_int8(model: M) -> M:
    """A copy of an evaluating captioner with its large products in 8 bits, and those of a word's few rows packed.

    The model itself where PyTorch has no 8-bit products, and where the model is no transformer.
    """
    if model.training:
        raise ValueError("a model in training mode has no use for rounded weights: call eval() first")
    if not int8_available() or not isinstance(model, TransformerCaptioner):
        return model
    swift = copy.deepcopy(model)
    if swift.output is None:  # words are said with the matrix they are read by
        swift.output = Int8Linear(swift.embedding.weight, None)  # type: ignore[assignment]
    for name, child in swift.named_children():
        if name not in ("layers", "copier"):  # a word's few rows are through small products before they are rounded
            _replace(swift, name, child, Int8Linear)
    for layer in cast("list[DecoderLayer]", swift.layers):
        seen = layer.cross_attention  # its keys and values are those of a whole photo
        _replace(seen, "key_value", seen.key_value, Int8Linear)
    if packing_available():
        _replace(swift, "layers", swift.layers, PackedLinear)
        for place, layer in enumerate(cast("list[DecoderLayer]", list(swift.layers))):
            if PackedDecoderLayer.suits(layer):
                swift.layers[place] = PackedDecoderLayer(layer)
    return swift


def _replace(parent: nn.Module, name: str, child: nn.Module, by: type[Int8Linear | PackedLinear]) -> None:
    """Put products of `by` in the place of large ones."""
    if isinstance(child, nn.Linear) and child.weight.numel() >= SMALLEST:
        setattr(parent, name, by(child.weight, child.bias))
    else:
        for below, grandchild in list(child.named_children()):
            _replace(child, below, grandchild, by)


class Int8Linear(nn.Module):
    """x Wᵀ + b, both in 8 bits with a scale for each row.

    PyTorch rounds all of x by its smallest and largest number. So each row is divided by its largest, and a row that
    has both 1 and -1 goes with them.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float().cpu()
        scales = (weight.abs().amax(1) / 127).double().clamp(min=1e-12)
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # a later PyTorch may not have it; `int8_available` tells
            warnings.simplefilter("ignore", UserWarning)
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._packed: Any = torch.ops.quantized.linear_prepack(rounded, None)
        self._bias = torch.zeros(len(weight)) if bias is None else bias.detach().float().cpu()
        self._range = torch.ones(1, weight.shape[1])
        self._range[:, 0] = -1
        self._fewer = not has_vnni()  # without these instructions, sums of two products of 8 bits can overflow

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) float32 to (…, out)."""
        rows = x.flatten(0, -2)
        largest = rows.abs().amax(1, keepdim=True).clamp_(min=1e-12)
        within = torch.cat([rows / largest, self._range])
        found = torch.ops.quantized.linear_dynamic(within, self._packed, self._fewer)[:-1]
        return torch.addcmul(self._bias, found, largest).view(*x.shape[:-1], -1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Int8Linear:
        """Itself: nothing in it changes."""
        return self


@functools.cache
def int8_available() -> bool:
    """Whether this PyTorch multiplies 8-bit integers on this machine, and gets it right."""
    weight, x = torch.linspace(-1, 1, 64).view(4, 16), torch.linspace(-2, 2, 32).view(2, 16)
    try:
        found = Int8Linear(weight, torch.ones(4))(x)
    except (AttributeError, RuntimeError):
        return False
    return torch.allclose(found, x @ weight.T + 1, atol=0.3)


class PackedLinear(nn.Module):
    """x Wᵀ + b, for inference only: it has no gradients, and is not pickled."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._packed: Any = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float().cpu(), ROWS)
        self._bias = None if bias is None else bias.detach().float().cpu()

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) float32 to (…, out)."""
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, *PLAIN)
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedLinear:
        """Itself: nothing in it changes."""
        return self


class PackedDecoderLayer(DecoderLayer):
    """A decoder layer that normalises first, for inference: what it adds to its rows is summed where it is multiplied.

    One word after others goes the short way, to the same numbers; all else goes the usual one.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)  # all of the layer is in this one
        words, image, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
        self._size, self._heads = words.size, words.heads
        self._products = [_packed(part) for part in (words.projection, words.output, image.query, image.output)]
        self._products += [_packed(feed[0]), _packed(feed[2])]
        norms = (layer.self_norm, layer.cross_norm, layer.feed_norm)
        self._normalise = [(norm.normalized_shape, norm.weight, norm.bias, norm.eps) for norm in norms]

    @staticmethod
    def suits(layer: DecoderLayer) -> bool:
        """Whether a layer is of this kind, with all of its products packed."""
        words, image, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
        products = (words.projection, words.output, image.query, image.output, feed[0], feed[2])
        return layer.pre_norm and all(isinstance(product, PackedLinear) for product in products)

    def forward(
        self, rows: Tensor, image: KeysValues, mask: Tensor, past: Tensor | None = None, *, weigh: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """As `DecoderLayer` does."""
        if past is None or weigh:
            return super().forward(rows, image, mask, past, weigh=weigh)
        linear, add = torch.ops.mkldnn._linear_pointwise.default, torch.ops.mkldnn._linear_pointwise.binary
        projection, output, query, image_output, up, down = self._products
        self_norm, cross_norm, feed_norm = self._normalise
        count, size, heads, width = len(rows), self._size, self._heads, self._size // self._heads

        x = linear(torch.layer_norm(rows, *self_norm), *projection, *PLAIN)  # (N, 1, 3 d)
        seen = torch.cat([past, x[:, :, size:]], 1)  # (N, t + 1, 2 d)
        keys, values = seen.view(count, -1, 2, heads, width).transpose(1, 3).unbind(2)  # (N, h, t + 1, d_h)
        queries = x[:, :, :size].view(count, 1, heads, width).transpose(1, 2)
        x = F.scaled_dot_product_attention(queries, keys, values).view(count, 1, size)
        rows = add(x, rows, *output, "add")

        x = linear(torch.layer_norm(rows, *cross_norm).view(len(image[0]), -1, size), *query, *PLAIN)  # (B, K, d)
        queries = x.view(len(x), -1, heads, width).transpose(1, 2)
        x = F.scaled_dot_product_attention(queries, *image, attn_mask=mask).transpose(1, 2).reshape(count, 1, size)
        rows = add(x, rows, *image_output, "add")

        x = linear(torch.layer_norm(rows, *feed_norm), *up, *RELU)
        return add(x, rows, *down, "add"), seen, None


def _packed(product: nn.Module) -> tuple[Any, Tensor | None]:
    assert isinstance(product, PackedLinear)
    return product._packed, product._bias


@functools.cache
def packing_available() -> bool:
    """Whether this PyTorch has such products, and gets them right."""
    weight, x = torch.linspace(-1, 1, 64).view(4, 16), torch.linspace(-2, 2, 96).view(2, 3, 16)
    rest = torch.ones(2, 3, 4)
    try:
        with torch.no_grad():
            product = PackedLinear(weight, torch.ones(4))
            added = torch.ops.mkldnn._linear_pointwise.binary(x, rest, *_packed(product), "add")
            clamped = torch.ops.mkldnn._linear_pointwise(x, *_packed(product), *RELU)
            found = product(x)
    except (AttributeError, RuntimeError, TypeError):
        return False
    right = x @ weight.T + 1
    pairs = ((found, right), (added, right + 1), (clamped, right.relu()))
    return all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)
