"""What may be said of an error to anyone: secrets, credentials and places on disk are taken out.

For messages, errors, traces and summaries; what a workflow computes (inputs, arguments,
outputs) is stored as it is. What helps is kept: file names, line numbers, the rest of the
sentence. Every pattern here takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import quote

GONE: Final = "***"
"""Stands where a secret was."""

ELSEWHERE: Final = "…"
"""Stands for the folders of a path."""

SHORTEST: Final = 8
"""Characters of a known secret. A shorter value ("yes", "5432") would be found everywhere."""


class _Late:
    """A pattern that is compiled when it is first used: most processes have nothing to mask."""

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(re.compile(self.pattern, self._flags), name)
        return found


_ROUNDS = 8
"""What one round uncovers the next one masks; two are almost always enough."""


def mask(text: str, secrets: Collection[str] = ()) -> str:
    """The text without what would leak. Masking twice is masking once.

    `secrets` are values that are known to be secret and are taken out wherever they stand.
    """
    low = text.lower()
    if not (secrets or "/" in low or "\\" in low or "-" in low or "_" in low or _named(low) or _formed(low)):
        return text
    for _ in range(_ROUNDS):
        if secrets:
            text = _without(text, secrets)
        low = text.lower()
        named, formed, placed = _named(low), _formed(low), "/" in text or "\\" in text
        if not (named or formed or placed):
            break
        before = text
        if formed and "-----" in text:
            text = _without_pem(text)
        if placed:
            text = _PLACES.sub(_place, text)
        if named:
            text = _SCHEMED.sub(_schemed, _FLAGGED.sub(rf"\1{GONE}", _ASSIGNED.sub(_assigned, text)))
        if formed:
            text = _TOKENS.sub(GONE, text)
        if text == before:
            break
    return text


def secrets_in(environment: Mapping[str, str]) -> frozenset[str]:
    """The values of variables whose names say that they are secret, in each spelling that may turn up."""
    named = {
        value.strip()
        for name, value in environment.items()
        if _VARIABLE.search(name) and name not in ("PWD", "OLDPWD")  # folders, and no passwords
    }
    values = named | {part.strip() for value in named for part in value.split(",")}  # a list of keys
    long = {value for value in values if len(value) >= SHORTEST}
    spellings = (spelt for value in long for spelt in (value, quote(value, safe=""), repr(value)[1:-1]))
    return frozenset(spellings)


_VARIABLE = _Late(
    r"(?ai:passw(?:or)?d|passphrase|pwd|secret|token|credential|private|(?<![a-z])key(?![a-z])|apikey|auth|dsn)"
    r"(?!.*(?ai:_(?:file|path|dir|sock|url|id|name))$)"
)


def _without(text: str, secrets: Collection[str]) -> str:
    found = [secret for secret in secrets if secret in text]
    for secret in sorted(found, key=len, reverse=True):  # one may be part of another
        text = text.replace(secret, GONE)
    return text


def _named(low: str) -> bool:
    """Whether a text in small letters has a name in it that a secret could be assigned to."""
    return (
        "key" in low or "token" in low or "pass" in low or "pwd" in low or "secret" in low
        or "auth" in low or "cred" in low or "cookie" in low or "session" in low or "signature" in low
        or "connection" in low or "bearer" in low or "basic" in low
    )  # fmt: skip


def _formed(low: str) -> bool:
    """Whether a text in small letters could have a secret in it that is known by its form."""
    if "eyj" in low or "akia" in low or "asia" in low or "aiza" in low or "sg." in low or "ya29." in low:
        return True
    return ("-" in low or "_" in low) and ("-----" in low or _LONG.search(low) is not None)


_LONG = _Late(r"[\w\-]{16}")


# --- secrets that are assigned to a name ---

_STRONG = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|credentials?|connection[_\-]?string"
    r"|(?:api|access|secret|private|auth|signing|encryption|account|master)[_\-]?key|apikey"
)
_WEAK = r"token|authorization|auth|cookie|session(?:[_\-]?id)?|signature"
_NAME = (
    rf"(?P<strong>(?ai:{_STRONG}))|(?P<weak>(?ai:{_WEAK}))"
    r"|(?P<key>(?<![A-Za-z])(?ai:key)|(?<=[a-z0-9])Key)"
)
_BARE = r"""(?:[^\s"'`,;&<>()\[\]{}|]|[,()\[\]{}|](?=[^\s"'`,;&<>()\[\]{}|]))"""
"""A character of a value without quotes: a bracket or comma belongs to it only in the middle."""

_ASSIGNED = _Late(
    rf"""
    (?:{_NAME}) (?:_?(?:\d{{1,2}}|(?ai:base)))?
    (?:
        (?P<sep>  (?P<close>\\?["'`])? \]? [ \t]{{0,8}} (?: => | :=? | ==? | %3[Dd] ) [ \t]{{0,8}}
                | ["'], [ \t]{{0,8}} (?=["'])
                | [ \t]{{1,8}} (?=["'])
        )
        (?P<value> \\"[^"\\\n]*\\" | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | `[^`\n]*`
                 | (?P<scheme>(?ai:bearer|basic|token|digest|negotiate)[ \t]{{1,8}})? ["'`]? {_BARE}+
        )
      | > (?P<inner>[^<>\n]{{1,1024}}) (?=</)
    )
    """,
    re.VERBOSE,
)
_NOTHING = _Late(r"(?ai:none|null|nil|undefined|true|false|\*\*\*|\$|\$\{[^}]*\}|<[a-z ]*>|\{[a-z_.]*\}|%s)")
_NUMBER = _Late(r"[\d.]{1,12}")
_WORDS = _Late(r"[A-Z]?[a-z]*(?:[_. \-][A-Z]?[a-z]+)*")


def _assigned(found: re.Match[str]) -> str:
    whole, inner = found[0], found["inner"]
    value = found["value"] if inner is None else inner
    text = value.strip("\\\"'`")
    if not text or _NOTHING.fullmatch(text) or _harmless(found, text):
        return whole
    head = whole[: len(whole) - len(value)]
    quote_ = '\\"' if value.startswith('\\"') else value[0] if value[0] in "\"'`" else ""
    return f"{head}{quote_}{GONE}{quote_ if len(value) > 1 and value.endswith(quote_) else ''}"


def _harmless(found: re.Match[str], value: str) -> bool:
    """Whether a name that is not always a secret's has a value that does not look like one."""
    spaced = found["sep"] is not None and not found["sep"].strip()
    if found["strong"]:
        return spaced and not found["strong"].lower().startswith("pass")
    if spaced or _NUMBER.fullmatch(value):
        return True
    if found["scheme"]:
        return False
    if found["key"]:
        return len(value) < 6 or _WORDS.fullmatch(value) is not None
    in_quotes = found["close"] is not None
    prose = found["sep"] is None or ":" in found["sep"]
    return prose and not in_quotes and (len(value) < 4 or _WORDS.fullmatch(value) is not None)


_FLAGGED = _Late(
    rf"""((?<!-)--(?=[A-Za-z])[A-Za-z0-9\-]{{0,30}}?(?ai:{_STRONG}|token)"""
    rf"""(?:[ \t]{{1,8}}|["'],[ \t]{{0,8}}["']))(?!-|{re.escape(GONE)})[^\s"'`]+"""
)

_SCHEMED = _Late(r"((?ai:bearer|basic)[ \t]{1,8})([A-Za-z0-9._~+/\-]{8,}=*)")


def _schemed(found: re.Match[str]) -> str:
    return found[0] if _WORDS.fullmatch(found[2]) else f"{found[1]}{GONE}"


# --- secrets that are known by their form ---

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
_TOKENS = _Late(
    rf"""{_START}(?:
        (?:sk|pk|rk|xapp|glpat|glptt|pypi|dapi|pplx|gsk|tvly|lsv2|key)[_\-](?=[A-Za-z0-9_\-]{{0,64}}\d)[A-Za-z0-9_\-]{{16,}}
      | (?:gh[pousr]|github_pat|hf|npm|dop_v1|shp(?:at|ca|pa|ss)|xai|r8|nvapi)[_\-][A-Za-z0-9_\-]{{16,}}
      | xox[a-z]-[A-Za-z0-9\-]{{11,}}
      | (?:AKIA|ASIA)[A-Z0-9]{{12,}}
      | AIza[A-Za-z0-9_\-]{{20,}}
      | ya29\.[A-Za-z0-9_\-]{{16,}}
      | SG\.[A-Za-z0-9_\-]{{16,64}}\.[A-Za-z0-9_\-]{{16,}}
      | (?<![_\-])eyJ[A-Za-z0-9_\-]{{8,}}\.[A-Za-z0-9_\-]{{4,}}(?:\.[A-Za-z0-9_\-]*){{0,3}}
    )""",
    re.VERBOSE,
)

_PEM_BEGIN = _Late(r"-----BEGIN [A-Z0-9 ]{1,40}-----")
_PEM_END = _Late(r"-----END [A-Z0-9 ]{1,40}-----")
_PEM_BODY = _Late(r"(?:[A-Za-z0-9+/=:,.\-\s]|\\[nr])*")
_PEM_REST = _Late(rf"(?:[A-Za-z0-9+/=\s]|\\[nr])*{_PEM_END.pattern}")


def _without_pem(text: str) -> str:
    """The text without keys and certificates, whole or cut off at either end."""
    rest = _PEM_REST.match(text)
    ends = [end.end() for end in reversed(list(_PEM_END.finditer(text)))]
    done = rest.end() if rest else 0
    parts = [GONE] if rest else []
    for begin in _PEM_BEGIN.finditer(text):
        if begin.start() < done:
            continue
        parts += [text[done : begin.start()], GONE]
        while ends and ends[-1] < begin.end():
            ends.pop()
        body = _PEM_BODY.match(text, begin.end())
        done = ends[-1] if ends else body.end() if body else begin.end()
    return "".join([*parts, text[done:]])


# --- places: URLs and paths ---

_PIECE = r"""(?:[^\s"'`<>|;:,()\[\]{}\\]+|[,()\[\]{}](?=[\w.\-])|\\[ /])"""
_PLACES = _Late(
    rf"""
      :// (?P<url>[^\s"'`<>]*)
    | (?<=["'`]) (?P<quoted>(?:/|[A-Za-z]:[\\/]|\\\\)[^"'`\n]*) (?=["'`])
    | (?P<windows>
        (?:(?<![A-Za-z0-9])[A-Za-z]:[\\/]+ | (?<![\w\\{ELSEWHERE}])\\{{2,4}}(?=[\w.$\-]+\\))
        (?:[^\s"'`<>|:;,*?()\[\]{{}}]+|[,()\[\]{{}}](?=[\w.\-])|[ ](?=[^\s\\/:"'`<>|]{{1,64}}\\))+
      )
    | (?:(?<![\w/.~*}}$\\\#{ELSEWHERE}])|(?<=-[IL])) (?P<posix>\\?/{{1,4}}{_PIECE}+)
    """,
    re.VERBOSE,
)
_ROUTED = _Late(r"(?:GET|PUT|POST|HEAD|PATCH|DELETE|OPTIONS) \Z")
_COMPONENT = _Late(r"[^\\/]+")
_PYTHON = _Late(r"python3\.\d+t?")
_USER = _Late(r"[\w.\-]+")


def _place(found: re.Match[str]) -> str:
    if (url := found["url"]) is not None:
        return "://" + (_shortened(url) if url.startswith("/") else _anonymous(url))
    if found["posix"] and _ROUTED.search(found.string[max(0, found.start() - 8) : found.start()]):
        return found[0]  # a request, not a file
    return _shortened(found[0])


def _anonymous(url: str) -> str:
    """A URL, from its authority on, without credentials; it may hold another URL."""
    first, *others = url.split("://")
    return "://".join([_nobodys(first), *map(_nobodys, others)])


def _nobodys(part: str) -> str:
    authority = re.split(r"[/?#]", part, maxsplit=1)[0]
    _, at, host = authority.rpartition("@")
    if at:
        return f"{GONE}@{host}{part[len(authority) :]}"
    name, colon, port = authority.partition(":")
    if not colon or not port or port.isdigit() or name.startswith("["):
        return part
    _, at, host = part.rpartition("@")  # a password with a slash in it, or one that was cut off
    return f"{GONE}@{host}" if at else f"{GONE}{part[len(authority) :]}"


def _shortened(path: str) -> str:
    """The last component of a path; of an installed module, the part that names it."""
    parts = list(_COMPONENT.finditer(path))
    names = [part[0] for part in parts]
    if len(names) < 2 or names[0] == ELSEWHERE:
        return path
    home = 2 if names[0].endswith(":") else 1
    if len(names) == home + 1 and names[home - 1].lower() in ("home", "users"):
        user = _USER.match(names[-1])
        return "~" + path[parts[-1].start() + (user.end() if user else 0) :]
    keep = len(names) - 1
    for i, name in enumerate(names):
        module = i and names[i - 1] == "lib" and _PYTHON.fullmatch(name) and keep == len(names) - 1
        if module or name in ("site-packages", "dist-packages"):
            keep = i
    return ELSEWHERE + path[parts[keep - 1].end() :] if keep else path
