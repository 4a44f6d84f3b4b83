"""A model for inference on a CPU whose large matrix products are of 8-bit integers, and of 16-bit weights.

A word of one photo is a product of a few rows with all the weights, which takes as long as reading the weights takes: a
quarter of the bytes are read four times as soon. Weights are rounded once, by the largest of each of their rows, inputs
at each call ("dynamic quantisation"), also each row by its own largest: so photos that are looked at together do not
change each other's numbers but by the last digit of float32, which tips a rounding now and then. Sums and results are
float32. The products of a word's few rows in the layers of a decoder are of float32 with weights in 16 bits
(`HalfLinear`), which are exact where the file has them in 8. Such a product takes some 20 µs, and calling a module 5:
so a layer reads a word by the products alone (`HalfDecoderLayer`).
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

SMALLEST = 1 << 12  # weights that a product has at least: smaller ones are quick as they are
M = TypeVar("M", bound=nn.Module)


def with_int8(model: M) -> M:
    """A copy of an evaluating captioner with its large products in 8 bits, and those of a word's few rows in 16.

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
    if half_available():
        _replace(swift, "layers", swift.layers, HalfLinear)
        for place, layer in enumerate(cast("list[DecoderLayer]", list(swift.layers))):
            if HalfDecoderLayer.suits(layer):
                swift.layers[place] = HalfDecoderLayer(layer)
    return swift


def _replace(parent: nn.Module, name: str, child: nn.Module, by: type[Int8Linear | HalfLinear]) -> None:
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


class HalfLinear(nn.Module):
    """x Wᵀ + b with weights in 16 bits, for inference only: it has no gradients, and is not pickled.

    Each row of W is divided by a 127th of its largest number, which multiplies the result: weights that were rounded to
    8 bits are whole numbers then, and exact. The inputs, products and sums are float32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float().cpu()
        self.scales = (weight.abs().amax(1) / 127).clamp(min=1e-12)  # (out,)
        divided = weight / self.scales[:, None]
        whole = divided.round()
        divided = torch.where((divided - whole).abs() < 1e-3, whole, divided)  # what division made of whole numbers
        bias = torch.zeros(len(weight)) if bias is None else bias.detach().float().cpu()
        self.packed: Any = torch.ops.quantized.linear_prepack_fp16(divided, bias / self.scales)

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) float32 to (…, out)."""
        product: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self.packed)
        return product.mul_(self.scales)

    def __deepcopy__(self, memo: dict[int, Any]) -> HalfLinear:
        """Itself: nothing in it changes."""
        return self


class HalfDecoderLayer(DecoderLayer):
    """A decoder layer that normalises first, for inference: one word after others is read by the products alone.

    All else goes the way of `DecoderLayer`, to the same numbers.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)  # all of the layer is in this one
        self._size, self._heads = layer.self_attention.size, layer.self_attention.heads
        self._products = [(part.packed, part.scales) for part in _products(layer) if isinstance(part, HalfLinear)]
        norms = (layer.self_norm, layer.cross_norm, layer.feed_norm)
        self._normalise = [(norm.normalized_shape, norm.weight, norm.bias, norm.eps) for norm in norms]

    @staticmethod
    def suits(layer: DecoderLayer) -> bool:
        """True for a layer that normalises first and has 16-bit weights alone."""
        return layer.pre_norm and all(isinstance(product, HalfLinear) for product in _products(layer))

    def forward(
        self, rows: Tensor, image: KeysValues, mask: Tensor, past: Tensor | None = None, *, weigh: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if past is None or weigh:
            return super().forward(rows, image, mask, past, weigh=weigh)
        linear = torch.ops.quantized.linear_dynamic_fp16.default
        linear_relu = torch.ops.quantized.linear_relu_dynamic_fp16.default
        projection, output, query, image_output, up, down = self._products
        self_norm, cross_norm, feed_norm = self._normalise
        count, size, heads, width = len(rows), self._size, self._heads, self._size // self._heads

        x = linear(torch.layer_norm(rows, *self_norm), projection[0]).mul_(projection[1])  # (N, 1, 3 d)
        seen = torch.cat([past, x[:, :, size:]], 1)  # (N, t + 1, 2 d)
        keys, values = seen.view(count, -1, 2, heads, width).transpose(1, 3).unbind(2)  # (N, h, t + 1, d_h)
        queries = x[:, :, :size].view(count, 1, heads, width).transpose(1, 2)
        x = F.scaled_dot_product_attention(queries, keys, values).view(count, 1, size)
        rows = torch.addcmul(rows, linear(x, output[0]), output[1])

        x = torch.layer_norm(rows, *cross_norm).view(len(image[0]), -1, size)  # (B, K, d)
        queries = linear(x, query[0]).mul_(query[1]).view(len(x), -1, heads, width).transpose(1, 2)
        x = F.scaled_dot_product_attention(queries, *image, attn_mask=mask).transpose(1, 2).reshape(count, 1, size)
        rows = torch.addcmul(rows, linear(x, image_output[0]), image_output[1])

        x = linear_relu(torch.layer_norm(rows, *feed_norm), up[0]).mul_(up[1])
        return torch.addcmul(rows, linear(x, down[0]), down[1]), seen, None


def _products(layer: DecoderLayer) -> tuple[nn.Module, ...]:
    words, image, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
    return words.projection, words.output, image.query, image.output, feed[0], feed[2]


@functools.cache
def half_available() -> bool:
    """True where this PyTorch multiplies with 16-bit weights on this machine, and gets it right."""
    weight, x = torch.linspace(-1, 1, 64).view(4, 16), torch.linspace(-2, 2, 96).view(2, 3, 16)
    try:
        product = HalfLinear(weight, torch.ones(4))
        clamped = torch.ops.quantized.linear_relu_dynamic_fp16(x, product.packed).mul_(product.scales)
        plain = product(x)
    except (AttributeError, RuntimeError, TypeError):
        return False
    right = x @ weight.T + 1
    return torch.allclose(plain, right, atol=1e-2) and torch.allclose(clamped, right.relu(), atol=1e-2)
