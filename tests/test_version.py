"""The version is stated once, in `gapless.__version__`; the tags, the changelog and the citations agree with it.

Between releases it is that of the next one with `.dev0`. A clone may have no tags, and a zip has no git at all: then
what can be compared is.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import gapless
from gapless.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
RELEASE = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
DEVELOPMENT = ".dev0"


def release_of(version: str) -> tuple[int, ...]:
    """The release that a version is, or leads to."""
    return tuple(map(int, version.removesuffix(DEVELOPMENT).split(".")))


def fits_tag(version: str, tag: str, is_tagged: bool) -> bool:
    """Whether a version may stand in a commit whose latest tag is this one; `is_tagged`: it is the commit's own."""
    return version == tag[1:] if is_tagged else release_of(version) > release_of(tag[1:])


def git(*words: str) -> str:
    """What git prints, nothing where it has no answer."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@pytest.mark.parametrize(
    ("version", "tag", "is_tagged", "fits"),
    [
        ("0.1.0", "v0.1.0", True, True),
        ("0.1.0.dev0", "v0.1.0", True, False),  # tagged before the version was set
        ("0.1.1", "v0.1.0", True, False),
        ("0.2.0.dev0", "v0.1.0", False, True),
        ("0.1.0", "v0.1.0", False, False),  # not raised after the release
        ("0.2.0", "v0.1.0", False, True),  # the commit that is about to be tagged
        ("0.10.0.dev0", "v0.9.0", False, True),
    ],
)
def test_a_version_fits_a_tag(version: str, tag: str, is_tagged: bool, fits: bool) -> None:
    assert fits_tag(version, tag, is_tagged) is fits


def test_the_version_is_a_release_or_on_the_way_to_one() -> None:
    assert re.fullmatch(rf"{RELEASE}({re.escape(DEVELOPMENT)})?", gapless.__version__)


def test_the_version_fits_the_latest_tag() -> None:
    tag = git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    if not tag:
        pytest.skip("there is no tag here to compare with")
    assert re.fullmatch(f"v{RELEASE}", tag)
    is_tagged = tag in git("tag", "--points-at", "HEAD").splitlines()
    assert fits_tag(gapless.__version__, tag, is_tagged), f"{gapless.__version__} after {tag}"


def test_the_changelog_begins_with_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(r"^## \[(.*)\] - (.*)$", changelog, re.MULTILINE)
    assert heading is not None
    assert heading.group(1) == gapless.__version__.removesuffix(DEVELOPMENT)
    dated = "unreleased" if gapless.__version__.endswith(DEVELOPMENT) else r"\d{4}-\d\d-\d\d"
    assert re.fullmatch(dated, heading.group(2))


def test_the_citations_have_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    references = (ROOT / "gapless" / "references.bib").read_text(encoding="utf-8")
    assert f"\nversion: {gapless.__version__}\n" in citation
    assert f"version = {{{gapless.__version__}}}," in references


def test_the_command_says_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"gapless {gapless.__version__}\n"
