"""What the steps of hello.yaml do."""

from __future__ import annotations


def greet(name: str) -> str:
    return f"Hello, {name}!"


def measure(name: str) -> int:
    return len(name)


def frame(greeting: str, letters: int) -> str:
    return f"{greeting} Your name has {letters} letters."
