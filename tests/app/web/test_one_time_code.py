"""The code that admits a browser once, and the file that takes it there."""

import stat
from concurrent.futures import ThreadPoolExecutor

from camp.app.web.one_time_code import OneTimeCode, redirect_file


def test_it_counts_once() -> None:
    code = OneTimeCode()
    assert not code.redeem("")
    assert not code.redeem("é")
    assert code.redeem(code.text)
    assert not code.redeem(code.text)
    assert OneTimeCode().text != code.text


def test_of_many_at_once_one_is_admitted() -> None:
    code = OneTimeCode()
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: code.redeem(code.text), range(64))) == 1


def test_it_expires() -> None:
    now = [100.0]
    code = OneTimeCode(lifetime=60, clock=lambda: now[0])
    now[0] = 160.0
    assert not code.redeem(code.text)
    now[0] = 110.0
    assert not code.redeem(code.text)


def test_waiting_ends_with_its_use_and_with_its_time() -> None:
    used, short = OneTimeCode(lifetime=1e6), OneTimeCode(lifetime=0.01)
    used.redeem(used.text)
    used.wait()
    short.wait()


def test_the_file_is_private_and_does_not_stay() -> None:
    with redirect_file('http://127.0.0.1:1/open?code=a&b="') as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert 'content="0; url=http://127.0.0.1:1/open?code=a&amp;b=&quot;"' in path.read_text()
    assert not path.parent.exists()


def test_a_file_that_is_removed_early_is_no_fault() -> None:
    with redirect_file("http://127.0.0.1:1/") as path:
        path.unlink()
    assert not path.parent.exists()
