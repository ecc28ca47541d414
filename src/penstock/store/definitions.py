"""Definitions as stores keep them: encoded once, however many runs are pinned to them."""

from __future__ import annotations

from hashlib import sha256

from penstock.store.base import NewRun
from penstock.store.batches import damaged
from penstock.workflow import spec
from penstock.workflow.spec import Workflow

KNOWN = 32
"""Definitions whose encoding is remembered: that of a large one takes longer than its run takes to start."""


def decode(body: bytes, hash_: str) -> Workflow:
    """A definition as it was written. `StoreError` when it is not that any more."""
    if "sha256:" + sha256(body).hexdigest() != hash_:
        raise damaged(f"the definition {hash_}", "it is not what was written")
    return spec.decode(body)


class Definitions:
    def __init__(self) -> None:
        self._known: dict[int, tuple[Workflow, str, bytes]] = {}
        """By identity. The definition is kept with it: no other can come to have the same."""

    def pinned(self, new: NewRun) -> tuple[dict[str, tuple[str, bytes]], dict[str, str]]:
        """The name and the encoding of every definition that a run needs, and the hashes of children."""
        children = {name: self._encoded(child)[0] for name, child in new.children.items()}
        bodies = {new.hash: (new.workflow.name, self._encoded(new.workflow)[1])}
        for name, child in new.children.items():
            bodies[children[name]] = child.name, self._encoded(child)[1]
        return bodies, children

    def _encoded(self, workflow: Workflow) -> tuple[str, bytes]:
        """Its hash, and what that is the hash of."""
        if (known := self._known.get(id(workflow))) is None:
            known = self._known[id(workflow)] = workflow, workflow.hash, spec.encode(workflow)
            if len(self._known) > KNOWN:
                del self._known[next(iter(self._known))]
        return known[1:]
