"""Sums of gradients in an order that does not depend on the number of processes, so that the weights are equal bits.

Floating-point sums depend on their order. Here the micro-batches of a step are the leaves of a binary tree whose shape
follows from their number alone: a node of n leaves has the largest power of two below n on its left. Each process adds
up the subtrees of its own micro-batches as they come (like the carries of a binary counter, so that at most log2(n) + 1
copies of the gradients are kept), then processes exchange what is left, in the order of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from lmlab.training.distributed.world import World, share

Gradients = list[Tensor | None]


@dataclass
class Node:
    """The sum of the gradients of the micro-batches from `start` to `stop`, and the processes that have it."""

    start: int
    stop: int
    owners: tuple[int, ...]
    gradients: Gradients | None  # None in other processes


class ExactSum:
    """Adds up the gradients of the micro-batches of one step."""

    def __init__(self, parameters: Sequence[nn.Parameter], *, groups: int, per_group: int, world: World) -> None:
        """A step has `groups` groups of `per_group` micro-batches; the processes of `world` share the groups."""
        self.parameters, self.world = parameters, world
        self.count = groups * per_group
        self.ranges = [share(groups, rank, world.size) for rank in range(world.size)]
        self.per_group = per_group
        self.own: list[Node] = []
        self.next = self.ranges[world.rank].start * per_group

    def add(self) -> None:
        """Take the gradients of the next micro-batch of this process from the parameters, which are left without."""
        found: Gradients = []
        for parameter in self.parameters:
            gradient, parameter.grad = parameter.grad, None
            found.append(gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient)
        self.own.append(Node(self.next, self.next + 1, (self.world.rank,), found))
        self.next += 1
        while len(self.own) > 1 and self._are_siblings(*self.own[-2:]):
            right = self.own.pop()
            left = self.own[-1]
            assert left.gradients is not None
            assert right.gradients is not None
            left.gradients, left.stop = _add(left.gradients, right.gradients), right.stop

    def finish(self) -> None:
        """Put the sum over all processes into the gradients of the parameters."""
        nodes = self._all_nodes()
        while len(nodes) > 1:
            at = next(i for i in range(len(nodes) - 1) if self._are_siblings(nodes[i], nodes[i + 1]))
            nodes[at : at + 2] = [self._join(nodes[at], nodes[at + 1])]
        (root,) = nodes
        if len(root.owners) < self.world.size:
            self._spread(root)
        assert root.gradients is not None
        for parameter, gradient in zip(self.parameters, root.gradients, strict=True):
            parameter.grad = gradient

    def _are_siblings(self, left: Node, right: Node) -> bool:
        """Whether two adjacent nodes have the same parent in the tree."""
        size = left.stop - left.start
        if size & (size - 1) or left.start % (2 * size):
            return False
        rest = right.stop - right.start
        return rest == size or (right.stop == self.count and rest < size)

    def _all_nodes(self) -> list[Node]:
        """The nodes that are left in all processes, in the order of their micro-batches."""
        nodes: list[Node] = []
        for rank, groups in enumerate(self.ranges):
            if rank == self.world.rank:
                nodes += self.own
                continue
            before = len(nodes)
            for leaf in range(groups.start * self.per_group, groups.stop * self.per_group):
                nodes.append(Node(leaf, leaf + 1, (rank,), None))
                while len(nodes) > before + 1 and self._are_siblings(*nodes[-2:]):
                    right = nodes.pop()
                    nodes[-1].stop = right.stop
        return nodes

    def _join(self, left: Node, right: Node) -> Node:
        """The parent of two nodes; where as many processes have either, all of them have it (recursive doubling)."""
        rank = self.world.rank
        owners: tuple[int, ...] = (left.owners[0],)
        pairs = [(left.owners[0], right.owners[0])]
        if len(left.owners) == len(right.owners) and not {*left.owners} & {*right.owners}:
            owners, pairs = (*left.owners, *right.owners), list(zip(left.owners, right.owners, strict=True))
        both = len(owners) > 1
        found: Gradients | None = None
        for one, other in pairs:
            if one == other == rank:
                assert left.gradients is not None
                assert right.gradients is not None
                found = _add(left.gradients, right.gradients)
            elif rank == one:
                assert left.gradients is not None
                found = _add(left.gradients, self._exchange(left.gradients, other, gives=both, takes=True))
            elif rank == other:
                assert right.gradients is not None
                theirs = self._exchange(right.gradients, one, gives=True, takes=both)
                found = _add(theirs, right.gradients) if both else None
        return Node(left.start, right.stop, owners, found)

    def _exchange(self, own: Gradients, other: int, *, gives: bool, takes: bool) -> Gradients:
        """Exchange gradients with another process, or only give or take them; those that are None are not sent."""
        flags = [own[i] is not None for i in range(len(own))]
        like = self.parameters[0]
        sent = like.new_tensor(flags).to(like.device).byte()
        received = like.new_zeros(len(own)).byte()
        if gives and takes:
            (received,) = self.world.swap([sent], other)
        elif gives:
            self.world.send([sent], other)
        else:
            self.world.receive([received], other)
        theirs: Gradients = [
            parameter.new_empty(parameter.shape) if has else None
            for parameter, has in zip(self.parameters, received.tolist(), strict=True)
        ]
        mine = [each.contiguous() for each in own if each is not None]
        others = [each for each in theirs if each is not None]
        first = self.world.rank < other
        if gives and takes and flags == received.bool().tolist():
            swapped = iter(self.world.swap(mine, other))
            return [next(swapped) if has else None for has in flags]
        for turn in (first, not first):
            if turn and gives:
                self.world.send(mine, other)
            elif not turn and takes:
                self.world.receive(others, other)
        return theirs

    def _spread(self, root: Node) -> None:
        """Give the sum to all processes."""
        sender = root.owners[0]
        own = root.gradients or []
        flags = self.world.gather([each is not None for each in own])[sender]
        shapes = zip(self.parameters, flags, strict=True)
        found = own or [each.new_empty(each.shape) if has else None for each, has in shapes]
        present = [None if each is None else each.contiguous() for each in found]
        self.world.broadcast_tensors([each for each in present if each is not None], sender)
        root.gradients = present


def _add(left: Gradients, right: Gradients) -> Gradients:
    """The sums, written over those of the left; a gradient that is None leaves the other one as it is."""
    return [two if one is None else one if two is None else one.add_(two) for one, two in zip(left, right, strict=True)]
