"""What an engine tells comes to the loops of events together, in order, and soon where it is urgent."""

from __future__ import annotations

import asyncio
import threading

from lmlab.serve.engine.outbox import Outbox


def test_what_is_kept_comes_in_order_and_only_once() -> None:
    async def tell() -> list[int]:
        outbox, reported, loop = Outbox(), list[int](), asyncio.get_running_loop()
        for number in range(3):
            outbox.put(loop, lambda number=number: reported.append(number), urgent=False)  # type: ignore[misc]
        await asyncio.to_thread(outbox.deliver)
        await asyncio.to_thread(outbox.deliver)
        return reported

    assert asyncio.run(tell()) == [0, 1, 2]


def test_a_while_passes_between_two_deliveries_unless_something_is_urgent() -> None:
    async def tell() -> list[list[str]]:
        outbox, reported, loop = Outbox(), list[str](), asyncio.get_running_loop()
        seen = []
        for name, urgent in (("first", False), ("second", False), ("end", True)):
            outbox.put(loop, lambda name=name: reported.append(name), urgent=urgent)  # type: ignore[misc]
            await asyncio.to_thread(outbox.deliver, after=0.0 if name == "first" else 3600.0)
            seen.append(list(reported))
        return seen

    assert asyncio.run(tell()) == [["first"], ["first"], ["first", "second", "end"]]


def test_a_loop_that_has_ended_is_passed_over() -> None:
    outbox, loop = Outbox(), asyncio.new_event_loop()
    loop.close()
    outbox.put(loop, lambda: None, urgent=True)
    outbox.deliver()


def test_nothing_is_lost_between_threads() -> None:
    async def tell() -> int:
        outbox, reported, loop = Outbox(), list[int](), asyncio.get_running_loop()

        def put_many() -> None:
            for number in range(2000):
                outbox.put(loop, lambda number=number: reported.append(number), urgent=False)  # type: ignore[misc]
                if number % 7 == 0:
                    outbox.deliver()

        threads = [threading.Thread(target=put_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])
        outbox.deliver()
        await asyncio.sleep(0)
        return len(reported)

    assert asyncio.run(tell()) == 8000
