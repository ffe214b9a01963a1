"""Tests that are coroutines run in virtual time, and inside those of their fixtures that can be entered."""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.live.net.live import run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def entered() -> None:
        async with AsyncExitStack() as stack:
            for fixture in given.values():
                if hasattr(fixture, "__aenter__"):
                    await stack.enter_async_context(fixture)
            await pyfuncitem.obj(**given)

    run(entered())
    return True
