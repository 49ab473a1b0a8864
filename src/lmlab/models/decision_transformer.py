"""Decision Transformer: a Transformer decoder that chooses actions from the return to go and the states so far.

Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling", section 3 and algorithm 1.
Step t of an episode is three tokens: the return to go R_t (the sum of the rewards from t on), the state s_t and the
action a_t, with one vector P[t] for the time of all three:

    x = LN([E_R R_1 + P[1]; E_s s_1 + P[1]; E_a a_1 + P[1]; E_R R_2 + P[2]; …])
    z = x + Attention(LN(x));  h = z + FeedForward(LN(z))        in each block, with causal attention
    a_t = tanh(W h_t)  or  P(a_t) = softmax(W h_t)               at the vector of s_t; continuous or discrete actions

To act, ask for a return: R_1 is what is asked for, and R_{t+1} = R_t − r_t. Without returns (`returns = false`) it is
behaviour cloning, which imitates the average of the episodes.

Shapes: B episodes, T steps, S state dimensions, A action dimensions (discrete actions are one-hot), D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import MultiHeadAttention
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.gpt import initialise
from lmlab.models.model import Heads, Model, ModelConfig, Output, by_depth


class DecisionTransformerConfig(ModelConfig):
    """The size of a Decision Transformer."""

    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = {"states": 4, "actions": 2, "discrete": True, "longest": 1000}

    states: int = Field(ge=1, description="state dimensions; set by the data")
    actions: int = Field(ge=1, description="discrete actions, or action dimensions; set by the data")
    discrete: bool = Field(description="whether actions are discrete; set by the data")
    longest: int = Field(ge=1, le=10**7, description="the most steps of an episode; set by the data")
    width: int = Field(128, ge=1, description="hidden size: width of the vectors")
    heads: Heads = 4
    layers: int = Field(3, ge=1, description="Transformer blocks")
    window: int = Field(20, ge=1, description="context length: the most steps that the model reads at once")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="dropout probability, on embeddings, attention weights and each sublayer"
    )
    returns: bool = Field(True, description="read the return to go; without it this is behaviour cloning")

    @classmethod
    def from_corpus(cls, corpus: Any) -> dict[str, Any]:
        """The sizes of states and actions, and the length of the longest episode."""
        scales = corpus.media
        sizes = {"states": scales.state_width, "actions": scales.actions, "discrete": scales.discrete}
        return {**sizes, "longest": scales.longest}

    @property
    def tokens_per_step(self) -> int:
        """Return to go, state and action; without returns, two."""
        return 3 if self.returns else 2


class Block(nn.Module):
    """z = x + Attention(LN(x)); h = z + FeedForward(LN(z)): GPT-2's with ReLU."""

    def __init__(self, config: DecisionTransformerConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = MultiHeadAttention(config.width, config.heads, dropout=config.dropout)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, 4 * config.width, activation=torch.relu)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x


class History(NamedTuple):
    """The last steps of unfinished episodes."""

    states: Tensor  # [B, T, S]
    actions: Tensor  # [B, T, A], the last one not yet known
    returns: Tensor  # [B, T]
    timesteps: Tensor  # [B, T]


class DecisionTransformer(Model):
    """Returns, states and actions to vectors; then the blocks; an action from the vector of each state."""

    Config: ClassVar[type[Any]] = DecisionTransformerConfig
    main_input: ClassVar[str] = "states"

    config: DecisionTransformerConfig

    def __init__(self, config: DecisionTransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_return = Linear(1, config.width) if config.returns else None
        self.embed_state = Linear(config.states, config.width)
        self.embed_action = Linear(config.actions, config.width)
        self.embed_time = nn.Embedding(config.longest, config.width)
        self.entry_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.output = Linear(config.width, config.actions)
        self.apply(initialise)

    @property
    def window(self) -> int:
        """The most steps that it reads at once."""
        return self.config.window

    @property
    def discrete(self) -> bool:
        """Whether actions are discrete."""
        return self.config.discrete

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        steps = {"returns": torch.zeros(rows, window), "timesteps": torch.zeros(rows, window, dtype=torch.long)}
        widths = {"states": self.config.states, "actions": self.config.actions}
        vectors = {name: torch.zeros(rows, window, width) for name, width in widths.items()}
        return {name: value.to(self.device) for name, value in {**vectors, **steps}.items()}

    def embed(self, states: Tensor, actions: Tensor, returns: Tensor, timesteps: Tensor) -> Tensor:
        """The vectors [B, 3T, D] of all steps for the first block: return to go, state, action, and so on."""
        if states.shape[1] > self.config.window:
            raise ValueError(f"{states.shape[1]} steps at once: this model reads {self.config.window}")
        time = self.embed_time(timesteps.clamp(max=self.config.longest - 1))
        tokens = [self.embed_state(states) + time, self.embed_action(actions) + time]
        if self.embed_return is not None:
            tokens.insert(0, self.embed_return(returns[..., None]) + time)
        x: Tensor = self.dropout(self.entry_norm(torch.stack(tokens, dim=2).flatten(1, 2)))
        return x

    def forward(
        self,
        states: Tensor,
        *,
        actions: Tensor,
        returns: Tensor,
        timesteps: Tensor,
        lengths: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """Steps of episodes -> the vectors [B, T, D] of their states, computed from the steps before and the return.

        `lengths` are not needed: causal attention never sees the padding at the end of a row.
        """
        x = self.embed(states, actions, returns, timesteps)
        for block in self.blocks:
            record_layer(self._at_states(x))
            x = block(x)
        hidden = self._at_states(self.norm(x))
        record_layer(hidden)
        return Output(hidden)

    def _at_states(self, x: Tensor) -> Tensor:
        """The vectors [B, T, D] at the tokens of states: the one before each action."""
        return x[:, self.config.tokens_per_step - 2 :: self.config.tokens_per_step]

    def scores(self, hidden: Tensor) -> Tensor:
        """Logits of the discrete actions, or continuous actions from -1 to 1, at vectors [..., D]."""
        found: Tensor = self.output(hidden)
        return found if self.config.discrete else torch.tanh(found)

    def start(self, batch_size: int) -> History:
        """The history of `batch_size` episodes that have not begun."""
        return History(*(self.blank_inputs(batch_size, 0)[name] for name in History._fields))

    def step(
        self, states: Tensor, history: History, *, returns: Tensor, actions: Tensor | None = None
    ) -> tuple[Tensor, History]:
        """The scores [B, A] of the next action in states [B, S], with returns to go [B]; and the new history.

        `actions` [B, A] are those that were taken in the step before; None in the first. The model reads the last
        `window` steps, and computes all of them again: once a window is full, every vector in it changes.
        """
        if (actions is None) != (history.states.shape[1] == 0):
            raise ValueError("give the actions of the step before, except in the first step of an episode")
        before = history.actions.clone()
        if actions is not None:
            before[:, -1] = actions
        time = history.timesteps[:, -1:] + 1 if history.timesteps.shape[1] else torch.zeros_like(states[:, :1]).long()
        unknown = torch.zeros(len(states), 1, self.config.actions, device=states.device)
        added = History(states[:, None], unknown, returns[:, None], time)
        known = history._replace(actions=before)
        history = History(
            *(torch.cat(pair, dim=1)[:, -self.config.window :] for pair in zip(known, added, strict=True))
        )
        hidden = self(**history._asdict()).hidden
        return self.scores(hidden[:, -1]), history

    def depths(self) -> list[list[nn.Parameter]]:
        *below, last = self.blocks
        first = (self.embed_return, self.embed_state, self.embed_action, self.embed_time, self.entry_norm)
        return by_depth(self, first, *((block,) for block in below), (last, self.norm))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """Per step of an episode: its tokens, each with 2 per weight and 4·D per key and layer."""
        config, tokens = self.config, self.config.tokens_per_step
        entry = 2.0 * config.width * (config.states + config.actions + (1 if config.returns else 0))
        weights = sum(module.weight.numel() for module in self.blocks.modules() if isinstance(module, nn.Linear))
        return entry + tokens * (2.0 * weights + 4.0 * tokens * window * config.width * config.layers)

    def head_flops(self) -> float:
        return 2.0 * self.output.weight.numel()
