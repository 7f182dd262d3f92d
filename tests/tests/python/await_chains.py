"""Sleeps in tasks of asyncio, and says where by asyncio's own account: a JSON list of stacks, each a list of
[name, line, whether it awaits what is above it], outermost first. With an argument a task waits for what never
comes, until the process ends after so many seconds."""
import asyncio
import json
import os
import select
import sys
import threading

stacks = []


def account():
    graph = asyncio.capture_call_graph()
    coroutine = graph.call_stack[-1].frame if graph else None
    frame, stack = sys._getframe(2), []
    while frame is not None:
        stack.append([frame.f_code.co_qualname, frame.f_lineno, False])
        if frame is coroutine:
            # A task that several await has nobody above it.
            while len(graph.awaited_by) == 1:
                graph = graph.awaited_by[0]
                stack += suspended(graph.future)
        frame = frame.f_back
    stack.reverse()
    return stack


def suspended(task):
    """Its coroutines, innermost first. The graph has no generators, which an object's `__await__` may be."""
    awaitable, stack = task.get_coro(), []
    while True:
        if hasattr(awaitable, "cr_frame"):
            frame, awaitable = awaitable.cr_frame, awaitable.cr_await
        elif hasattr(awaitable, "gi_frame"):
            frame, awaitable = awaitable.gi_frame, awaitable.gi_yieldfrom
        else:
            return stack[::-1]
        stack.append([frame.f_code.co_qualname, frame.f_lineno, True])


def nap():
    # A time from now on, whatever comes in between: `time.sleep` ends at a time that it has computed before.
    stacks.append(account()); select.poll().poll(3)


async def leaf():
    await asyncio.sleep(0)
    nap()


async def inner():
    await leaf()


async def gathers():
    await asyncio.gather(leaf(), inner())


async def groups():
    async with asyncio.TaskGroup() as group:
        group.create_task(inner())
        group.create_task(gathers())


async def shields():
    await asyncio.shield(inner())


async def with_timeout():
    async with asyncio.timeout(10):
        await asyncio.wait_for(asyncio.create_task(gathers()), 10)


async def awaits_one_of_many():
    await asyncio.wait([asyncio.create_task(inner())])


async def in_turn():
    for next_one in asyncio.as_completed([leaf(), inner()]):
        await next_one


async def awaited_by_nobody():
    task = asyncio.create_task(inner())
    await asyncio.sleep(0.05)
    await task


async def waits_for(task):
    await task


async def awaited_by_two():
    task = asyncio.create_task(inner())
    await asyncio.gather(waits_for(task), waits_for(task))


async def awaited_by_one_of_two():
    """The set of those that await it has lost one."""
    task = asyncio.create_task(outlives(0.05))
    others = [asyncio.create_task(may_be_cancelled(task)) for _ in range(2)]
    await asyncio.sleep(0.01)
    others[0].cancel()
    await others[1]


async def may_be_cancelled(task):
    await asyncio.wait([task])


async def outlives(seconds):
    await asyncio.sleep(seconds)
    nap()


async def generates():
    for i in range(2):
        await asyncio.gather(leaf())
        yield i


async def over_a_generator():
    async for _ in generates():
        nap()


class Awaitable:
    def __await__(self):
        return (yield from asyncio.create_task(inner()).__await__())


async def awaits_an_object():
    await Awaitable()


async def eagerly():
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    try:
        await asyncio.gather(naps_at_once(), inner())
    finally:
        loop.set_task_factory(None)


async def naps_at_once():
    nap()
    await inner()


async def deep(levels):
    if levels == 0:
        return await leaf()
    await asyncio.create_task(deep(levels - 1))


async def forever():
    await asyncio.sleep(0)
    threading.Event().wait()


async def behind_forever():
    await asyncio.gather(forever())


async def main():
    nap()
    for way in [
        gathers, groups, shields, with_timeout, awaits_one_of_many, in_turn, awaited_by_nobody, awaited_by_two,
        awaited_by_one_of_two, over_a_generator, awaits_an_object, eagerly,
    ]:
        await way()
        await asyncio.create_task(way())
    await deep(20)


if len(sys.argv) > 1:
    threading.Timer(float(sys.argv[1]), os._exit, [0]).start()
    asyncio.run(behind_forever())
asyncio.run(main())
print(json.dumps(stacks))
