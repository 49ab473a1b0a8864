"""The affine map y = W x + b, laid out for the number of vectors that it maps: the fast twin of `F.linear`."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.kernels.calibration import Pair, Thresholds, measure, thresholds
from lmlab.layers.kernels.low_precision import (
    Int8,
    LowPrecision,
    Precision,
    check_no_gradient,
    exact_kernels,
    round_weight,
    warn_if_slow,
)
from lmlab.layers.kernels.training_linear import linear_with_gradients

FEW = 32
"""At most this number of vectors is multiplied as W xᵀ instead of x Wᵀ, where nothing is prepared."""
LARGE = 3 * 2**17
"""Weights from which on a product with a single vector is worth two threads, where nothing is prepared."""
SCALE = "weight_scale"
"""The buffer with the scales of the outputs of a weight in int8."""
ROOM = 2**28
"""Weights of a model, at most, that are prepared: their second copy takes a gigabyte."""


class Prepared:
    """A weight in the layouts in which it is read fastest, for products with few vectors; made when first needed."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.detach()
        self._identity = _identify(weight)

    def fits(self, weight: Tensor) -> bool:
        """Whether the weight is still what it was and where it was; writing into `weight.data` is not noticed."""
        return self._identity == _identify(weight)

    def times(self, x: Tensor, rows: int, bias: Tensor | None) -> Tensor:
        """W x + b for a few vectors, in single precision."""
        if rows > 1 or self._two_threads:
            return _by_onednn(x, self._blocks, bias)
        return self.times_vector(x, bias)

    def times_vector(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """W x + b for one vector, in one thread."""
        vector = x.view(-1)
        y = torch.mv(self._columns, vector) if bias is None else torch.addmv(bias, self._columns, vector)
        return y.view(*x.shape[:-1], -1)

    @cached_property
    def _two_threads(self) -> bool:
        """Whether a product with one vector is large enough for oneDNN, which uses all threads."""
        return self._weight.numel() >= thresholds().vector_blocks

    @cached_property
    def _columns(self) -> Tensor:
        """W as one vector wants it: a wide W column by column, because few long sums are quicker than many short ones.

        MKL does that in one thread, yet oneDNN takes 30 microseconds only to begin, as long as all of a small product.
        """
        outputs, inputs = self._weight.shape
        return self._weight.t().contiguous().t() if outputs > inputs else self._weight

    @cached_property
    def _blocks(self) -> Tensor:
        """W as oneDNN wants it."""
        return cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(self._weight, None))

    def __deepcopy__(self, memo: object) -> None:
        """A copy of a module begins without."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def _identify(weight: Tensor) -> tuple[object, ...]:
    """A key that identifies a weight and its version.

    A module that is moved or converted gets new `weight.data`, which leaves the version as it was. `Prepared` holds on
    to the memory that it was made from, so nothing else can be allocated there.
    """
    return weight._version, weight.data_ptr(), weight.stride(), weight.dtype, weight.device


class Prepares(nn.Module):
    """A module with a weight that can be prepared."""

    weight: nn.Parameter
    prepared: Prepared | LowPrecision | None = None


def prepare(model: object) -> None:
    """Lay out the weights of a model in evaluation on a CPU for products with few vectors, such as writing needs.

    F.linear repacks all of a weight for each product, which for a few vectors takes longer than the product itself.
    Here it is done once, and cached with the weight until it changes. It takes as long as about ten products, so it
    is for when many are to come.
    """
    if not isinstance(model, nn.Module) or model.training or not _has_onednn():
        return
    modules = [each for each in model.modules() if isinstance(each, Prepares) and not is_rounded(each)]
    weights = [module.weight for module in modules]
    plain = all(w.device.type == "cpu" and w.dtype == torch.float32 and not w.is_inference() for w in weights)
    if not plain or sum(weight.numel() for weight in weights) > ROOM:
        return
    for module in modules:
        if not isinstance(module.prepared, Prepared) or not module.prepared.fits(module.weight):
            module.prepared = Prepared(module.weight)


def round_weights(model: nn.Module, precision: Precision) -> None:
    """Replace the matrices of a model in evaluation on a CPU by rounded ones; one after the other, to spare memory.

    `module.weight` becomes the rounded weight (int8, with the buffer `weight_scale`, or bf16). Embeddings, norms, the
    cells of LSTMs, and small matrices stay in fp32; a matrix that is also an embedding is rounded for the output layer
    alone.
    """
    if precision == "fp32":
        return
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    rounded: dict[int, LowPrecision | None] = {}  # by the identity of the weight: a tied one is rounded once
    for module in [each for each in model.modules() if isinstance(each, Prepares) and not is_rounded(each)]:
        key = id(module.weight)
        if key not in rounded:
            rounded[key] = round_weight(module.weight, precision)
        if (found := rounded[key]) is not None:
            set_rounded(module, found)
    if not any(map(is_rounded, model.modules())):
        raise ValueError(
            f"weights = {precision!r}: {type(model).__name__} has no matrices of products that can be converted (its "
            "layers are small, or recurrent cells); load it with fp32"
        )
    warn_if_slow(precision)


def set_rounded(module: Prepares, rounded: LowPrecision) -> None:
    """Give a module a rounded weight."""
    module.weight = nn.Parameter(rounded.weight, requires_grad=False)
    if isinstance(rounded, Int8):
        module.register_buffer(SCALE, rounded.scales)
    module.prepared = rounded


def is_rounded(module: nn.Module) -> bool:
    """Whether a module computes with a weight in bf16 or int8."""
    return isinstance(module, Prepares) and isinstance(module.prepared, LowPrecision)


@cache
def _has_onednn() -> bool:
    """Whether this PyTorch can do it; its operators for that are not part of what is promised to stay."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        weight = torch.ops.mkldnn._reorder_linear_weight(torch.eye(8), None)
        return torch.equal(_by_onednn(torch.eye(8), weight, None), torch.eye(8))
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, prepared: Prepared | LowPrecision | None = None
) -> Tensor:
    """x [..., I], W [O, I], b [O] -> W x + b [..., O]; quicker than F.linear for a few vectors on a CPU.

    When a text is read token by token, the time goes into fetching W from memory. F.linear computes x Wᵀ, for which MKL
    first repacks all of W; W xᵀ takes it row by row (1.4 to 3.5 times as fast for 2 to 16 vectors). For a single
    vector MKL uses one thread only, so a large W goes to oneDNN, which uses all of them. A prepared W is quicker still.
    """
    if isinstance(prepared, LowPrecision):
        check_no_gradient(x)
        read: Any = prepared.read(x)
        return prepared.times(read, bias)
    if torch.is_grad_enabled():
        return linear_with_gradients(x, weight, bias)
    if torch.compiler.is_compiling() or x.dtype != torch.float32:
        return F.linear(x, weight, bias)
    rows = x.numel() // x.shape[-1]
    if prepared is not None and rows <= thresholds().few_prepared and prepared.fits(weight):
        return prepared.times(x, rows, bias)
    if rows > FEW or x.device.type != "cpu" or weight.dtype != torch.float32:
        return F.linear(x, weight, bias)
    if rows == 1:
        return _by_onednn(x, weight, bias) if weight.numel() >= LARGE and _has_onednn() else F.linear(x, weight, bias)
    flat = x.reshape(rows, -1)
    y = torch.mm(weight, flat.t()) if bias is None else torch.addmm(bias[:, None], weight, flat.t())
    return y.t().reshape(*x.shape[:-1], -1)


class Linear(nn.Linear, Prepares):  # type: ignore[misc]
    """`linear` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias, self.prepared)

    def part(self, x: Tensor, outputs: slice) -> Tensor:
        """Some of the outputs alone."""
        prepared = self.prepared.part(outputs) if isinstance(self.prepared, LowPrecision) else None
        return linear(x, self.weight[outputs], self.bias[outputs], prepared)


def apply_both(x: Tensor, one: Linear, two: Linear) -> tuple[Tensor, Tensor]:
    """Two layers of the same input, which is converted once where both have weights in bf16 or int8."""
    first, second = one.prepared, two.prepared
    if isinstance(first, LowPrecision) and type(first) is type(second):
        check_no_gradient(x)
        read: Any = first.read(x)
        return first.times(read, one.bias), second.times(read, two.bias)
    return one(x), two(x)


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def calibrate() -> Thresholds:
    """Measure for about a second which kernels are the fastest from which size on."""

    def weight_of(width: int) -> Tensor:
        return torch.randn(width, width)

    def prepared_or_not(rows: int) -> Pair:
        weight, x = weight_of(768), torch.randn(rows, 768)
        prepared = Prepared(weight)
        return Pair(lambda: prepared.times(x, 2, None), lambda: F.linear(x, weight))

    def one_thread_or_all(width: int) -> Pair:
        weight, x = weight_of(width), torch.randn(1, width)
        prepared = Prepared(weight)
        return Pair(lambda: prepared.times_vector(x, None), lambda: prepared.times(x, 2, None))

    def plain_or_packed(width: int) -> Pair:
        whole = Int8.of(weight_of(width))
        numbers = whole.read(torch.randn(16, width)).numbers
        return Pair(lambda: whole.sums(numbers, "plain"), lambda: whole.sums(numbers, "packed"))

    if not _has_onednn() or exact_kernels().names != ("plain", "packed"):
        return thresholds()
    with torch.no_grad():
        return measure((prepared_or_not, one_thread_or_all, plain_or_packed))
