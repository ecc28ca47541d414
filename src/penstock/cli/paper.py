"""Where lists and tables are printed: stdout, with colours on a terminal and as whole lines elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


class Paper(Console):
    """A console that leaves a reader who has seen enough to `guarded`, like any other write does."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def row(self, text: Text) -> None:
        """One line: cut off at the edge of a terminal, never elsewhere."""
        if self.is_terminal:
            self.print(text, no_wrap=True, overflow="ellipsis")
        else:
            self.print(text, soft_wrap=True)
