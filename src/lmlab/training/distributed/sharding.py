"""FSDP2: each process keeps a part of the weights, of their gradients and of the state of the optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from lmlab.training.distributed.group import Group

WHOLE_ONLY = ("reformer",)
"""Models whose backward pass takes their blocks apart: they are sharded as a whole."""


class ShardedGroup(Group):
    """Processes whose weights FSDP2 has divided; it adds their gradients."""

    sharded = True

    def __init__(self, *, local_rank: int | None = None) -> None:
        super().__init__(local_rank=local_rank)
        self.gradient_scale = 1.0
        self.mesh = init_device_mesh("cuda" if "nccl" in dist.get_backend() else "cpu", (self.size,))

    def wrap(self, module: nn.Module) -> nn.Module:
        """Shard each block of the model, then the rest; where a block cannot be sharded alone, all together."""
        if isinstance(module, FSDPModule):
            return module
        for block in find_blocks(module):
            self._shard(block)
        return self._shard(module)

    def _shard(self, module: nn.Module) -> nn.Module:
        sharded = fully_shard(module, mesh=self.mesh)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo has no reduction that divides
        return module

    def accumulating(self, wrapped: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        return _synchronizing(cast(FSDPModule, wrapped), last=last)

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, tensor in tensors.items():
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.writes:
                found[name] = whole.detach().cpu()
        return found

    def part(self, tensor: Tensor, parameter: Tensor) -> Tensor:
        if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
            return tensor
        whole = tensor.to(parameter.device)
        return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)

    def local(self, tensor: Tensor) -> Tensor:
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        norm = super().norm(gradients)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm


def find_blocks(module: nn.Module) -> list[nn.Module]:
    """The blocks of a model that can be sharded alone; none where it is sharded as a whole."""
    if any(type(part).__module__.rpartition(".")[2] in WHOLE_ONLY for part in module.modules()):
        return []
    stacks = [part for name, part in module.named_modules() if name.rpartition(".")[2] == "blocks"]
    blocks = [block for stack in stacks for block in stack.children()]
    return [] if _shares_weights(module, blocks) else blocks


def _shares_weights(module: nn.Module, blocks: list[nn.Module]) -> bool:
    """Whether a weight of a block is used outside of it (ALBERT, Universal Transformers)."""
    if len({id(block) for block in blocks}) < len(blocks):
        return True
    inside: dict[nn.Parameter, int] = {}
    for number, block in enumerate(blocks):
        for parameter in block.parameters():
            if inside.setdefault(parameter, number) != number:
                return True
    owned = {id(part) for block in blocks for part in block.modules()}
    rest = (part for part in module.modules() if id(part) not in owned)
    return any(parameter in inside for part in rest for parameter in part.parameters(recurse=False))


@contextmanager
def _synchronizing(module: FSDPModule, *, last: bool) -> Iterator[None]:
    module.set_requires_gradient_sync(last)
    module.set_is_last_backward(last)
    try:
        yield
    finally:
        module.set_requires_gradient_sync(True)
        module.set_is_last_backward(True)
