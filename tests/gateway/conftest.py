"""A gateway in a folder of its own, and one that listens."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from reached import Gateway, Served


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path)


@pytest.fixture
def served(gateway: Gateway) -> Iterator[Served]:
    line = [*gateway.line, "--http", "127.0.0.1:0"]
    process = subprocess.Popen(line, cwd=gateway.folder, env=gateway.env, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        url, token = re.search(r"http://\S+", said), re.search(r"Bearer (\S+)", said)
        assert url is not None, said
        assert token is not None, said
        yield Served(url[0], token[1])
    finally:
        process.terminate()
        assert process.wait(15) == 0
        assert process.stderr is not None
        process.stderr.close()
