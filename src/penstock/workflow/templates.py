"""Templates: groups of steps that are copied once for each value of a variable, before anything is read.

    templates:
      round:
        - {id: draft, uses: agent:writer, with: {notes: "${ steps.audit[n-1].output }", round: "${ n }"}}
        - {id: audit, uses: agent:critic, with: {text: "${ steps.draft.output }"}}
    steps:
      - expand: round
        for: {n: [1, 2, 3]}
    outputs: {verdict: "${ steps.audit[3].output }"}

The rules:
1. `expand: NAME` stands for the template's steps, once for each combination of the values under `for` (the first
   variable changes slowest); without `for`, once. Values are text, numbers, true or false. Templates do not nest.
2. The copy of `draft` for n = 2 is `draft_2`. The id may also be written out, `draft_${ n }`, with every variable
   in it. Characters of a value that an id cannot have become `_`.
3. A variable in an expression is replaced by its value. `${ n }`, `${ n-1 }` and `${ n+1 }` alone are replaced as
   a whole: a text that is nothing else keeps the value's type.
4. Inside a template, a step of the same template (`steps.draft`, `previous.draft`, in `needs`, as a route's target)
   is the one of the same copy. `draft[n-1]`, `draft[2]` or `draft[n, 'x']` (an index for each variable) is the one of
   another copy, or else the step that is called so (`draft_0`) elsewhere in the file.
5. Outside, `steps.draft[2]` and `draft[2]` work too, with constants; so does the plain id, `draft_2`.
6. Beyond the first or last copy, `n-1` and `n+1` give `null` in expressions and nothing in `needs`. A reference that
   has no step in any copy is an error, as is one by constants that has none.

Only nodes are copied here; what their keys mean is known just as far as these rules say.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from penstock.workflow.cel_text import tokens, pieces
from penstock.workflow.findings import did_you_mean
from penstock.workflow.nodes import Node, describe
from penstock.workflow.problems import Problems
