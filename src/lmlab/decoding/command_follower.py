"""Command followers: a picture and a command to an action, and whole missions in the built-in world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from lmlab.data.readers.robot_world import LIMIT, Mission, is_on, move_hand, paint_world, read_action
from lmlab.decoding.beam_search import beam_search
from lmlab.models.abilities import FollowsCommands
from lmlab.progress import check_cancelled
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, pad_rows
from lmlab.tokenizers.processors.pictures import PictureProcessor, PixelArray


class Attempt(NamedTuple):
    """A mission that was tried."""

    success: bool
    steps: int
    frames: list[PixelArray]
    actions: list[str]


@dataclass(frozen=True, kw_only=True)
class CommandFollower:
    """A model that follows commands, with its tokenizer, frame and picture processor."""

    model: FollowsCommands
    tokenizer: Tokenizer
    frame: Frame
    processor: PictureProcessor

    def respond(self, pictures: Sequence[PixelArray], commands: Sequence[str], *, batch: int = 64) -> list[str]:
        """The most probable action, or answer, for each picture and command."""
        start = [int(token) for token in self.frame.row()["tokens"]]
        end = int(self.frame.row(b=[])["tokens"][-1])
        found: list[str] = []
        for first in range(0, len(commands), batch):
            check_cancelled()
            chosen = slice(first, first + batch)
            pixels = self.processor.normalise(np.stack([self.processor.process(each) for each in pictures[chosen]]))
            rows = [self.frame.row(a=self.tokenizer.encode(each))["source"] for each in commands[chosen]]
            source, lengths = pad_rows(rows)
            inputs = {"pixels": pixels, "source": source, "lengths": lengths}
            encoded = self.model.encode(**{name: value.to(self.model.device) for name, value in inputs.items()})
            prompt = torch.tensor([start] * len(rows), device=self.model.device)
            written = beam_search(
                self.model,
                prompt,
                tokens=(self.model.window or 1000) - len(start),
                beams=1,
                boundary=end,
                state=self.model.begin(encoded),
            )
            found += [self.tokenizer.decode(each[0].written).strip() for each in written]
        return found

    def try_missions(
        self,
        missions: Sequence[Mission],
        *,
        hide_command: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Attempt]:
        """Try missions side by side; one ends when the action is to stay, is no action, or after `LIMIT` steps."""
        hands = [mission.start for mission in missions]
        frames: list[list[PixelArray]] = [[] for _ in missions]
        actions: list[list[str]] = [[] for _ in missions]
        active = list(range(len(missions)))
        for step in range(LIMIT):
            pictures = [paint_world(missions[each].scene, hands[each]) for each in active]
            commands = ["" if hide_command else missions[each].command for each in active]
            going = []
            for each, picture, action in zip(active, pictures, self.respond(pictures, commands), strict=True):
                frames[each].append(picture)
                actions[each].append(action)
                move = read_action(action)
                if move is not None and move != (0.0, 0.0):
                    hands[each] = move_hand(hands[each], move)
                    going.append(each)
            active = going
            if progress is not None:
                progress(step + 1, LIMIT)
            if not active:
                break
        return [
            Attempt(is_on(mission.goal, hand), len(done), seen, done)
            for mission, hand, seen, done in zip(missions, hands, frames, actions, strict=True)
        ]
