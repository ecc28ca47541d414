"""`http:get` reaches the public internet, what it was allowed to, and nothing else.

The sites of these tests listen on several addresses of this machine: one stands for a public
address (it is on the list of exceptions), the others for those that must never be reached.
"""

from __future__ import annotations

import gzip
import http.server
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pytest
from serving import wait

from penstock.tools.builtin.http import LARGEST, Forbidden, Hosts, Http, is_public

OPEN, CLOSED = "127.0.0.1", "127.0.0.2"


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", unquote(self.path.removeprefix("/to/")))
            self.end_headers()
            return
        self.send_response(200)
        letters = "made-up" if self.path == "/odd" else "utf-8"
        self.send_header("Content-Type", f"text/plain; charset={letters}")
        bomb = self.path == "/bomb"
        if bomb:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        body = gzip.compress(b"x" * (LARGEST * 2)) if bomb else f"grüße {self.headers.get('X-Key')}".encode()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class Served:
    def __init__(self, address: str, port: int = 0) -> None:
        self.server = http.server.ThreadingHTTPServer((address, port), Site)
        self.server.asked = []  # type: ignore[attr-defined]
        self.port = self.server.server_port
        self.at = f"{address}:{self.port}"

    @property
    def asked(self) -> list[str]:
        """Paths that somebody asked for."""
        found: list[str] = self.server.asked  # type: ignore[attr-defined]
        return found


@contextmanager
def serving(address: str, port: int = 0) -> Iterator[Served]:
    site = Served(address, port)
    with site.server:
        thread = threading.Thread(target=site.server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield site
        site.server.shutdown()
        thread.join()


@pytest.fixture
def site() -> Iterator[Served]:
    with serving(OPEN) as found:
        yield found


@pytest.fixture
def secret(site: Served) -> Iterator[Served]:
    """Another site, on the same port of an address that must not be reached."""
    with serving(CLOSED, site.port) as found:
        yield found


class Names:
    """A name server that gives other answers each time, as one that means harm does."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = iter(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int, _: object) -> Sequence[Any]:
        self.asked.append(host)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in next(self._answers)
        ]


def open_to(*private: str, **rules: Any) -> Hosts:
    return Hosts(private=private, **rules)


def test_a_page_is_fetched(site: Served) -> None:
    found = wait(Http(open_to(site.at)).get(f"http://{site.at}/", {"X-Key": "k"}))

    assert (found["status"], found["text"]) == (200, "grüße k")


# --- redirects ---


def test_a_redirect_within_what_is_allowed_is_followed(site: Served) -> None:
    assert wait(Http(open_to(site.at)).get(f"http://{site.at}/to//page"))["text"] == "grüße None"


def test_a_page_whose_letters_nobody_knows_is_read_as_utf_8(site: Served) -> None:
    assert wait(Http(open_to(site.at)).get(f"http://{site.at}/odd"))["text"] == "grüße None"


@pytest.mark.parametrize("target", ["http://{at}/", "//{at}/", "http://[::ffff:127.0.0.2]:{port}/"])
def test_a_redirect_to_what_may_not_be_reached_is_not_followed(
    site: Served, secret: Served, target: str
) -> None:
    where = target.format(at=secret.at, port=secret.port)

    with pytest.raises(Forbidden, match="not an address of the public internet"):
        wait(Http(open_to(OPEN)).get(f"http://{site.at}/to/{where}"))
    assert secret.asked == []


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://x/", "http://u:p@x/", "gopher://x/"])
def test_a_redirect_to_something_else_is_not_followed(site: Served, target: str) -> None:
    with pytest.raises(Forbidden):
        wait(Http(open_to(OPEN)).get(f"http://{site.at}/to/{target}"))


def test_redirects_without_end_are_given_up(site: Served) -> None:
    with pytest.raises(ValueError, match="more than 5 redirects"):
        wait(Http(open_to(OPEN)).get(f"http://{site.at}" + "/to/" * 9))
    assert len(site.asked) == 6


def test_what_was_meant_for_one_host_is_not_told_to_another(site: Served) -> None:
    with serving(OPEN) as other:
        found = wait(Http(open_to(OPEN)).get(f"http://{site.at}/to/http://{other.at}/", {"X-Key": "k"}))
    assert found["text"] == "grüße None"


# --- names ---


def test_a_name_is_asked_for_once_and_the_connection_goes_where_it_was_judged(
    site: Served, secret: Served
) -> None:
    names = Names([OPEN], [CLOSED], [CLOSED])

    found = wait(Http(open_to(OPEN), look_up=names).get(f"http://rebind.example:{site.port}/"))

    assert found["status"] == 200
    assert (site.asked, secret.asked, names.asked) == (["/"], [], ["rebind.example"])


def test_a_name_that_has_moved_by_the_time_of_a_redirect_is_judged_again(
    site: Served, secret: Served
) -> None:
    names = Names([OPEN], [CLOSED])

    with pytest.raises(Forbidden, match=r"rebind\.example is 127\.0\.0\.2, which is not"):
        wait(
            Http(open_to(OPEN), look_up=names).get(
                f"http://rebind.example:{site.port}/to/http://rebind.example:{site.port}/"
            )
        )
    assert (len(site.asked), secret.asked) == (1, [])


def test_one_private_address_among_public_ones_is_enough_to_refuse(site: Served) -> None:
    names = Names([OPEN, "10.0.0.1"])

    with pytest.raises(Forbidden, match=r"mixed\.example is 10\.0\.0\.1"):
        wait(Http(open_to(OPEN), look_up=names).get(f"http://mixed.example:{site.port}/"))
    assert site.asked == []


def test_the_name_of_this_machine_is_refused(site: Served) -> None:
    with pytest.raises(Forbidden, match=r"localhost is (127\.0\.0\.1|::1)"):
        wait(Http().get(f"http://localhost:{site.port}/"))
    assert site.asked == []


# --- addresses ---


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "017700000001", "0177.0.0.1",
        "127.0.0.1.", "LOCALHOST", "localhost.", "0", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[::127.0.0.1]", "①②⑦.⓪.⓪.①", "%31%32%37.0.0.1",
    ],
)  # fmt: skip
def test_this_machine_is_refused_however_it_is_written(site: Served, host: str) -> None:
    with pytest.raises((Forbidden, ValueError)):
        wait(Http().get(f"http://{host}:{site.port}/"))
    assert site.asked == []


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/", "http://192.168.1.1/", "http://172.16.0.1/", "http://[fd00::1]/",
        "http://169.254.169.254/latest/meta-data", "http://[::ffff:169.254.169.254]/",
        "http://2852039166/", "http://0xa9fea9fe/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::1]/",
        "http://[fe80::1%25eth0]/", "http://user:pw@example.com/", "http://example.com\\@127.0.0.1/",
        "ftp://example.com/", "file:///etc/passwd", "http:///nothing", "http://[", "", "127.0.0.1",
    ],
)  # fmt: skip
def test_what_is_private_or_no_address_is_refused(url: str) -> None:
    with pytest.raises(Forbidden):
        wait(Http().get(url))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("::ffff:93.184.216.34", True),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b:1::5db8:d822", False),
        ("::7f00:1", False),
        ("fe80::1%eth0", False),
        ("x", False),
    ],
)
def test_which_addresses_are_public(address: str, *, public: bool) -> None:
    assert is_public(address) is public


# --- rules ---


def test_only_hosts_that_are_allowed_are_asked(site: Served) -> None:
    names = Names([OPEN], [OPEN])
    rules = Hosts(allow=("*.example.org",), private=(OPEN,))
    here = Http(rules, look_up=names)

    assert wait(here.get(f"http://www.example.org:{site.port}/"))["status"] == 200
    for host in ("example.com", "www.example.org.example.com", OPEN):
        with pytest.raises(Forbidden, match=r"may ask for; see \[tools\.http\]"):
            wait(here.get(f"http://{host}:{site.port}/"))
    assert names.asked == ["www.example.org"]


@pytest.mark.parametrize("host", ["bad.example", "BAD.example", "bad.example."])
def test_a_denied_host_is_denied_in_every_spelling(host: str) -> None:
    with pytest.raises(Forbidden, match="may ask for"):
        wait(Http(Hosts(deny=("bad.example",)), look_up=Names()).get(f"http://{host}/"))


def test_a_denied_address_is_denied_under_every_name(site: Served) -> None:
    names = Names([OPEN])

    with pytest.raises(Forbidden, match="http:get may not ask"):
        wait(Http(open_to(OPEN, deny=(OPEN,)), look_up=names).get(f"http://a.example:{site.port}/"))
    assert site.asked == []


@pytest.mark.parametrize("private", ["127.0.0.0/8", "127.0.0.1", "127.0.0.1:{port}", "a.example"])
def test_an_exception_is_a_host_an_address_or_a_network(site: Served, private: str) -> None:
    rules = open_to(private.format(port=site.port))
    host = OPEN if private.startswith("127") else "a.example"

    found = wait(Http(rules, look_up=Names([OPEN])).get(f"http://{host}:{site.port}/"))
    assert found["status"] == 200


def test_an_exception_for_one_port_is_none_for_another(site: Served) -> None:
    with pytest.raises(Forbidden):
        wait(Http(open_to(f"{OPEN}:1")).get(f"http://{site.at}/"))


def test_what_is_too_large_is_not_kept(site: Served) -> None:
    with pytest.raises(ValueError, match=r"is larger than|bomb"):
        wait(Http(open_to(OPEN)).get(f"http://{site.at}/bomb"))
