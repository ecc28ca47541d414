"""Definitions as stores keep them: once, however many runs are pinned to them."""

from __future__ import annotations

from hashlib import sha256

from penstock.store.base import NewRun
from penstock.store.batches import damaged
from penstock.workflow import spec
from penstock.workflow.spec import Workflow


def decode(body: bytes, hash_: str) -> Workflow:
    """A definition as it was written. `StoreError` when it is not that any more."""
    if "sha256:" + sha256(body).hexdigest() != hash_:
        raise damaged(f"the definition {hash_}", "it is not what was written")
    return spec.decode(body)


def pinned(new: NewRun) -> tuple[dict[str, tuple[str, bytes]], dict[str, str]]:
    """The name and the encoding of every definition that a run needs, and the hashes of children."""
    children = {name: child.hash for name, child in new.children.items()}
    bodies = {new.hash: (new.workflow.name, spec.encode(new.workflow))}
    for child in new.children.values():
        bodies[child.hash] = child.name, spec.encode(child)
    return bodies, children
