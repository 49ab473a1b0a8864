"""Products with weights of 8 or 16 bits, for models that are used and not trained.

    int8   y = s_x s_W ∘ (Q_W q_x) + b    with q_x = round(x / s_x),  s_x = max|x| / L,  Q_W = round(W / s_W)

Each output has its own scale s_W, each input row its own scale s_x, found when the product is computed. L is 127; on
processors without VNNI it is 63 for x, because their instructions add pairs of products in 16 bits. Q_W q_x is a sum of
integers, which is exact in whatever order it is added up: every kernel gives the same bits, and a row has the same
result whatever other rows there are.

    bf16   y = bf16(bf16(W) bf16(x)) + b

Sums are in fp32. Embeddings, norms, attention and softmax stay in fp32 in both.
"""

from __future__ import annotations

import warnings
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from lmlab.layers.kernels.calibration import thresholds
from lmlab.messages import suggest

Precision = Literal["fp32", "bf16", "int8"]
LEVELS = 127
"""The largest number of a weight; −128 is not used, so that the scale is symmetric."""
FEWER_LEVELS = 63
"""The largest number of an input for instructions whose 16-bit sums of two products would overflow with more."""
SMALLEST = 16
"""Inputs and outputs, at least, of a matrix that is converted: smaller ones cost nothing, and decide more."""


class Rows(NamedTuple):
    """Input vectors in 8 bits."""

    numbers: Tensor  # [N, I] int8
    scales: Tensor  # [N, 1]
    shape: torch.Size  # of the inputs [..., I]


class Int8:
    """A weight in 8 bits, with the layouts that its kernels need; made when first needed."""

    def __init__(self, weight: Tensor, scales: Tensor) -> None:
        self.weight, self.scales = weight.contiguous(), scales  # packing supposes that rows follow each other

    @staticmethod
    def of(weight: Tensor) -> Int8:
        """W [O, I] rounded to 8 bits, with a scale for each output."""
        scales = weight.detach().abs().amax(1) / LEVELS
        whole = weight.detach() / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
        return Int8(whole.round_().to(torch.int8), scales)

    def part(self, rows: slice) -> Int8:
        """Some of the outputs."""
        if (found := self._parts.get((rows.start, rows.stop))) is None:
            found = self._parts[rows.start, rows.stop] = Int8(self.weight[rows], self.scales[rows])
        return found

    def read(self, x: Tensor) -> Rows:
        """x as its products need it; shared by several weights."""
        return quantize_rows(x, input_levels())

    def times(self, rows: Rows, bias: Tensor | None) -> Tensor:
        """W x + b."""
        sums = self.sums(rows.numbers, choose_kernel(len(rows.numbers), self.weight.numel()))
        y = sums.mul_(rows.scales) if bias is None else torch.addcmul(bias, sums, rows.scales)
        return y.view(*rows.shape[:-1], -1)

    def sums(self, numbers: Tensor, kernel: Kernel) -> Tensor:
        """s_W ∘ (Q_W q_x) of numbers [N, I] -> [N, O]."""
        if kernel == "plain":
            return torch._int_mm(numbers, self.weight.t()) * self.scales
        if kernel == "packed":
            return packed_product(numbers, self._packed, self.scales)
        return int8_reference(numbers, self.weight, self.scales)

    @cached_property
    def _packed(self) -> Tensor:
        """W as oneDNN wants it."""
        return cast(Tensor, torch.ops.onednn.qlinear_prepack(self.weight, None))

    @cached_property
    def _parts(self) -> dict[tuple[int | None, int | None], Int8]:
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Int8:
        return Int8(self.weight.clone(), self.scales.clone())


class BFloat16:
    """A weight in bf16."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.contiguous()

    @staticmethod
    def of(weight: Tensor) -> BFloat16:
        return BFloat16(weight.detach().to(torch.bfloat16))

    def part(self, rows: slice) -> BFloat16:
        """Some of the outputs."""
        return BFloat16(self.weight[rows])

    def read(self, x: Tensor) -> Tensor:
        """x as its products need it; shared by several weights."""
        return x.to(torch.bfloat16)

    def times(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """W x + b."""
        if not has_bf16():
            y = bf16_reference(x, self.weight)
        else:
            y = cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, self._blocks, None, "none", [], "")).float()
        return y if bias is None else y.add_(bias)

    @cached_property
    def _blocks(self) -> Tensor:
        """W as oneDNN wants it."""
        return cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(self.weight, None))

    def __deepcopy__(self, memo: dict[int, Any]) -> BFloat16:
        return BFloat16(self.weight.clone())


LowPrecision = Int8 | BFloat16


def quantize_rows(x: Tensor, levels: int) -> Rows:
    """x [..., I] as whole numbers of at most `levels`, with a scale for each row; NaN and infinity give NaN scales."""
    flat = x.reshape(-1, x.shape[-1])
    scales = torch.add(_tiny(), flat.abs().amax(1, keepdim=True), alpha=1 / levels)
    return Rows(torch.div(flat, scales).round_().to(torch.int8), scales, x.shape)


@cache
def _tiny() -> Tensor:
    """Added to scales, which it changes only where they are zero: so that rows of zeros stay zero."""
    with torch.inference_mode(False):
        return torch.tensor(torch.finfo(torch.float32).tiny)


def int8_reference(numbers: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """s_W ∘ (Q_W q_x) of numbers [N, I] -> [N, O], in double precision, which holds every sum exactly."""
    return (numbers.double() @ weight.double().t()).float() * scales


def bf16_reference(x: Tensor, weight: Tensor) -> Tensor:
    """bf16(W x) of bf16 W and x, with sums in fp32."""
    return (x.float() @ weight.float().t()).to(torch.bfloat16).float()


def packed_product(numbers: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    """s_W ∘ (Q_W q_x) by oneDNN, which wants numbers from 0 on: it takes the products with the shift off again."""
    shift = input_levels() + 1
    shifted = numbers.add(shift - 256 if shift == LEVELS + 1 else shift).view(torch.uint8)  # modulo 256
    y = torch.ops.onednn.qlinear_pointwise(
        shifted, 1.0, shift, packed, scales, _zeros(len(scales)), None, 1.0, 0, torch.float32, "none", [], ""
    )
    return cast(Tensor, y)


@cache
def _zeros(count: int) -> Tensor:
    with torch.inference_mode(False):
        return torch.zeros(count, dtype=torch.long)


Kernel = Literal["plain", "packed", "reference"]


def choose_kernel(rows: int, weights: int) -> Kernel:
    """The fastest exact kernel for a product of this size on this machine."""
    exact = exact_kernels()
    if not exact.names:
        return "reference"
    if len(exact.names) == 1:
        return exact.names[0]
    return "plain" if rows == 1 or weights < thresholds().int8_packed else "packed"


class ExactKernels(NamedTuple):
    """Which kernels add up integers exactly on this machine, and up to which number of an input they do."""

    levels: int
    names: tuple[Kernel, ...]


def input_levels() -> int:
    """The largest number of an input on this machine."""
    return exact_kernels().levels


@cache
def exact_kernels() -> ExactKernels:
    """Find it by trying the largest numbers, whose sums overflow first."""
    for levels in (LEVELS, FEWER_LEVELS):
        kernels: tuple[Kernel, ...] = ("plain", "packed")
        if names := tuple(name for name in kernels if _is_exact(name, levels)):
            return ExactKernels(levels, names)
    return ExactKernels(LEVELS, ())


def _is_exact(kernel: Kernel, levels: int) -> bool:
    with torch.inference_mode(False):
        signs = torch.arange(64 * 96).view(64, 96) % 7 - 3
        weight = (signs.sign() * LEVELS).to(torch.int8)
        weight[0], weight[1] = LEVELS, -LEVELS
        ones, shift = torch.ones(64), levels + 1
        for rows in (1, 2, 17):
            numbers = torch.full((rows, 96), levels, dtype=torch.int8)
            numbers[rows // 2, ::3] = -levels
            right = int8_reference(numbers, weight, ones)
            try:
                if kernel == "plain":
                    found = torch._int_mm(numbers, weight.t()).float()
                else:
                    packed = torch.ops.onednn.qlinear_prepack(weight, None)
                    shifted = (numbers.int() + shift).to(torch.uint8)
                    found = torch.ops.onednn.qlinear_pointwise(
                        shifted, 1.0, shift, packed, ones, _zeros(64), None, 1.0, 0, torch.float32, "none", [], ""
                    )
            except (AttributeError, NotImplementedError, RuntimeError, TypeError):
                return False
            if not torch.equal(found, right):
                return False
    return True


@cache
def has_bf16() -> bool:
    """Whether oneDNN multiplies bf16 on this processor."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def check_precision(weights: str) -> Precision:
    """The precision called `weights`; a ValueError names those that there are."""
    if weights not in get_args(Precision):
        raise ValueError(f"weights = {weights!r} is not known{suggest(weights, get_args(Precision))}")
    return cast(Precision, weights)


def warn_if_slow(weights: Precision) -> None:
    """A warning where this processor has no fast instructions for a precision."""
    if (weights == "int8" and not exact_kernels().names) or (weights == "bf16" and not has_bf16()):
        warnings.warn(
            f"this processor has no fast {weights} products: results are the same, but fp32 is faster", stacklevel=3
        )


def check_no_gradient(x: Tensor) -> None:
    """A ValueError where somebody wants gradients through rounded weights."""
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("this model was loaded with bf16 or int8 weights, which give no gradients: load it with fp32")


def round_weight(weight: nn.Parameter, precision: Precision) -> LowPrecision | None:
    """A weight matrix in `precision`; None where it stays as it is."""
    if precision == "fp32" or weight.ndim != 2 or min(weight.shape) < SMALLEST or weight.dtype != torch.float32:
        return None
    return Int8.of(weight) if precision == "int8" else BFloat16.of(weight)
