"""lmlab act: let a run act in an environment."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, OutputAnalysis, Overwrite, Run, Seed
from lmlab.cli.texts import check_outputs
from lmlab.messages import printable


def act(
    run: Run,
    env: Annotated[str, typer.Option(help="CartPole-v1 …, builtin:cart-pole, or builtin:world.")],
    returns: Annotated[
        str | None, typer.Option("--return", help="Returns to ask for, as 100,500. (default: the best of the data)")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, max=10_000, help="Episodes for each return, or missions.")] = 10,
    seed: Seed = 0,
    video: Annotated[Path | None, typer.Option(help="Film of the first episode to write: .gif.")] = None,
    output: OutputAnalysis = None,
    overwrite: Overwrite = False,
    json_: Json = False,
    device: Device = "auto",
) -> None:
    """Let a run act in an environment, to reach a given return.

    Examples:

      lmlab act runs/cart-pole --env CartPole-v1 --return 500 --video film.gif

      lmlab act runs/cart-pole --env CartPole-v1 --return 50,150,300,500 --episodes 20 -o returns.html

      lmlab act runs/robot --env builtin:world --episodes 100 --video film.gif

    Environments need gymnasium: pip install 'lmlab\\[rl]'; builtin:cart-pole does not. Episode k begins with the seed
    --seed + k, so runs can be compared on the same episodes. Intervals are 95% intervals over episodes.

    builtin:world is for runs of policy: each episode is a mission with a command. It prints how many missions are a
    success, of held-out scenes and of goals with an unseen combination of colour and shape, with the command and
    without it.
    """
    from lmlab.analysis.policies.reached_returns import summarise
    from lmlab.analysis.policies.success_rates import measure_success
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show
    from lmlab.data.readers.robot_world import NAME as WORLD
    from lmlab.decoding.actor import open_environment, write_film

    check_output(output, inputs=[run], overwrite=overwrite)
    check_outputs({"--video": video}, inputs=[run], overwrite=overwrite)
    if video is not None and video.suffix.lower() != ".gif":
        raise ValueError(f"--video {video}: give a name that ends with .gif")
    model = open_run(run, device)
    if env == WORLD:
        if returns is not None or seed:
            raise ValueError(f"{WORLD} has missions and no returns: leave out --return and --seed")
        with progress_bar("acting") as progress:
            tried = measure_success(model.command_follower, run=run.name, missions=episodes, progress=progress)
        if video is not None:
            write_film(tried.first.frames, video, frames_per_second=3)
            print(printable(f"wrote {video}"), file=sys.stderr)
        show(tried.rates, output=output, json_=json_, subtitle=str(run))
        return
    actor = model.actor
    targets = [actor.processor.best] if returns is None else _parse_returns(returns)
    environment = open_environment(env, actor.processor)
    try:
        with progress_bar("acting") as progress:
            played = actor.play_all(environment, targets=targets, episodes=episodes, seed=seed, progress=progress)
    finally:
        environment.close()
    if video is not None:
        drawn = open_environment(env, actor.processor, film=True)
        try:
            write_film(actor.play(drawn, target=targets[0], seed=seed).frames, video)
        finally:
            drawn.close()
        print(printable(f"wrote {video}"), file=sys.stderr)
    show(summarise(played, actor.processor, run=run.name, env=env), output=output, json_=json_, subtitle=str(run))


def _parse_returns(given: str) -> list[float]:
    try:
        numbers = list(dict.fromkeys(float(part) for part in given.split(",")))
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(f"--return {given}: give numbers, separated by commas, as 100,500")
    return numbers
