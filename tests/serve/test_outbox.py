"""What an engine tells comes to the loops of events together, in order, and soon where it is urgent."""

from __future__ import annotations

import asyncio
import threading

from lmlab.serve.outbox import Post


def test_what_is_kept_comes_in_order_and_only_once() -> None:
    async def tell() -> list[int]:
        post, told, loop = Post(), list[int](), asyncio.get_running_loop()
        for number in range(3):
            post.put(loop, lambda number=number: told.append(number), urgent=False)  # type: ignore[misc]
        await asyncio.to_thread(post.deliver)
        await asyncio.to_thread(post.deliver)
        return told

    assert asyncio.run(tell()) == [0, 1, 2]


def test_a_while_passes_between_two_deliveries_unless_something_is_urgent() -> None:
    async def tell() -> list[list[str]]:
        post, told, loop = Post(), list[str](), asyncio.get_running_loop()
        seen = []
        for name, urgent in (("first", False), ("second", False), ("end", True)):
            post.put(loop, lambda name=name: told.append(name), urgent=urgent)  # type: ignore[misc]
            await asyncio.to_thread(post.deliver, after=0.0 if name == "first" else 3600.0)
            seen.append(list(told))
        return seen

    assert asyncio.run(tell()) == [["first"], ["first"], ["first", "second", "end"]]


def test_a_loop_that_has_ended_is_passed_over() -> None:
    post, loop = Post(), asyncio.new_event_loop()
    loop.close()
    post.put(loop, lambda: None, urgent=True)
    post.deliver()


def test_nothing_is_lost_between_threads() -> None:
    async def tell() -> int:
        post, told, loop = Post(), list[int](), asyncio.get_running_loop()

        def put_many() -> None:
            for number in range(2000):
                post.put(loop, lambda number=number: told.append(number), urgent=False)  # type: ignore[misc]
                if number % 7 == 0:
                    post.deliver()

        threads = [threading.Thread(target=put_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])
        post.deliver()
        await asyncio.sleep(0)
        return len(told)

    assert asyncio.run(tell()) == 8000
