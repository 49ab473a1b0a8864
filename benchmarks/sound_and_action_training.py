"""Training steps of Whisper and Decision Transformer: lmlab against `transformers`, in one process, interleaved.

    python benchmarks/sound_and_action_training.py [--rows whisper decision] [--repeats 7] [--threads 2]

Both train the same shape on the same data, without dropout, with gradient clipping at 1 and AdamW (lmlab with the fused
one of PyTorch, transformers with its default and with the fused one). Whisper: L4 d128 h4 on each side, 80 bands,
spectrograms of 400 frames (transformers pads each recording to the window, lmlab does not: here all are full), targets
of 32 tokens, vocabulary 4096. Decision Transformer: the paper's L3 d128 h1, 20 steps of 3 tokens, states of 17 and
actions of 6 numbers, batches of 64. Before timing, both are given the same weights and must have the same loss.
Printed: rows/s (median) and the ratio.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.training.devices import keep_buffers
from peers import same_weights, training_steps
from timing import make_parser, print_rows, take_turns

DECAY = 0.01
Losses = tuple[Callable[[Any], Tensor], Callable[[Any], Tensor]]
"""The loss of lmlab's model, and that of theirs."""


def whisper() -> tuple[nn.Module, Losses, int]:
    """Their model, the losses, and the rows of a batch."""
    import transformers

    batch, width, frames, length, vocabulary = 8, 128, 400, 32, 4096
    config = transformers.WhisperConfig(
        vocab_size=vocabulary, d_model=width, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, num_mel_bins=80,
        max_source_positions=frames // 2, max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, dropout=0.0, suppress_tokens=[], begin_suppress_tokens=[],
    )  # fmt: skip
    sound, tokens = torch.randn(batch, 80, frames), torch.randint(3, vocabulary, (batch, length + 1))
    given, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def ours(model: Any) -> Tensor:
        hidden = model(given, sound=sound).hidden.flatten(0, 1)
        loss: Tensor = model.total_nll(hidden, targets.flatten()) / targets.numel()
        return loss

    def theirs(model: Any) -> Tensor:
        loss: Tensor = model(input_features=sound, decoder_input_ids=given, labels=targets, use_cache=False).loss
        return loss

    return transformers.WhisperForConditionalGeneration(config), (ours, theirs), batch


def decision() -> tuple[nn.Module, Losses, int]:
    """Their model, the losses, and the rows of a batch."""
    import transformers

    batch, steps, states, actions = 64, 20, 17, 6
    config = transformers.DecisionTransformerConfig(
        state_dim=states, act_dim=actions, hidden_size=128, max_ep_len=1000, n_layer=3, n_head=1, n_inner=512,
        activation_function="relu", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    given = {
        "states": torch.randn(batch, steps, states),
        "actions": torch.rand(batch, steps, actions) * 2 - 1,
        "timesteps": torch.arange(steps).repeat(batch, 1),
    }
    returns = torch.randn(batch, steps)
    mask = torch.ones(batch, steps, dtype=torch.long)

    def ours(model: Any) -> Tensor:
        return F.mse_loss(model.scores(model(**given, returns=returns).hidden), given["actions"])

    def theirs(model: Any) -> Tensor:
        found = model(**given, rewards=None, returns_to_go=returns[..., None], attention_mask=mask)
        return F.mse_loss(found.action_preds, given["actions"])

    return transformers.DecisionTransformerModel(config), (ours, theirs), batch


ROWS = {"whisper": whisper, "decision": decision}


def contestants(reference: nn.Module, losses: Losses) -> dict[str, Callable[[], None]]:
    """A training step of each, after a check that they compute the same loss."""
    ours, theirs = losses
    own, fused = same_weights(reference), copy.deepcopy(reference)
    by_name: dict[str, Callable[[], Tensor]] = {
        "lmlab": lambda: ours(own),
        "transformers": lambda: theirs(reference),
        "transformers, fused AdamW": lambda: theirs(fused),
    }
    return training_steps(by_name, (own, reference, fused), decay=DECAY)


def main() -> None:
    parser = make_parser(__doc__, repeats=7, rows=ROWS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_buffers()
    for row in options.rows:
        torch.manual_seed(0)
        reference, losses, batch = ROWS[row]()
        times = take_turns(contestants(reference, losses), repeats=options.repeats, calls=3)
        print(f"{row}, batches of {batch}; same first loss")
        print_rows(times, work=batch, unit="rows", peer="transformers")


if __name__ == "__main__":
    main()
