"""What takes long or needs an extra is left out of the default run, not skipped, and one line says so."""

from __future__ import annotations

import extras
import pytest

from gapless.installation.extras import EXTRAS

pytest_plugins = "pytester"

CONFTEST = """
from left_out import LeftOut

def pytest_addoption(parser):
    parser.addoption("--thorough", action="store_true")

def pytest_configure(config):
    config.addinivalue_line("markers", "thorough")
    config.addinivalue_line("markers", "extra(name)")
    config.pluginmanager.register(LeftOut(config))
"""
TESTS = """
import pytest

def test_short(): pass

@pytest.mark.thorough
def test_long(): pass

@pytest.mark.thorough("large")
@pytest.mark.parametrize("size", ["small", "large"])
def test_some(size): pass

@pytest.mark.thorough(but=("small",))
@pytest.mark.parametrize("size", ["small", "large", "huge"])
def test_others(size): pass

@pytest.mark.extra("nowhere")
def test_extra(): pass
"""
NEEDY = 'import pytest\n\npytest.importorskip("no_such_library")\n\ndef test_one(): pass\n'


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests of all kinds, beside an extra that nobody has."""
    monkeypatch.setitem(extras.LIBRARIES, "nowhere", ("no_such_library",))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_all=TESTS, test_needy=NEEDY)
    return pytester


def run(suite: pytest.Pytester, *words: str) -> tuple[dict[str, int], list[str]]:
    """The outcomes, and the lines that say what is left out."""
    found = suite.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *words)
    return found.parseoutcomes(), [line for line in found.outlines if line.startswith("left out")]


def test_nothing_is_skipped_and_one_line_says_what_is_left_out(suite: pytest.Pytester) -> None:
    outcomes, lines = run(suite)
    assert outcomes == {"passed": 3, "deselected": 5}
    assert lines == [
        "left out: 4 tests of what takes long (pytest --thorough); "
        'those of extras: nowhere 1 file and 1 test (pip install -e ".[nowhere]")'
    ]


def test_thorough_runs_what_takes_long(suite: pytest.Pytester) -> None:
    outcomes, lines = run(suite, "--thorough")
    assert outcomes == {"passed": 7, "deselected": 1}
    assert lines == ['left out: those of extras: nowhere 1 file and 1 test (pip install -e ".[nowhere]")']


def test_a_file_that_is_asked_for_by_name_says_what_it_needs(suite: pytest.Pytester) -> None:
    assert run(suite, "test_needy.py", "test_all.py::test_short") == ({"passed": 1, "skipped": 1}, [])


def test_where_nothing_is_left_out_nothing_is_said(suite: pytest.Pytester) -> None:
    suite.makepyfile(no_such_library="")
    suite.syspathinsert()
    assert run(suite, "--thorough") == ({"passed": 9}, [])


def test_tests_know_the_extras_that_are_declared() -> None:
    assert set(extras.LIBRARIES) <= set(EXTRAS)
    assert [extras.extra_of(library) for library in ("torch", "transformers", "nbclient")] == ["torch", "hf", "docs"]
