"""Which CBC PuLP finds here: 2.10 comes with PuLP 3, a build of 3 with the package cbcbox, or there is none."""

from __future__ import annotations

import shutil
import subprocess
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PuLP 3.0 imports its own tests, which Python warns of
    import pulp


def _executable() -> str | None:
    bundled = getattr(pulp, "PULP_CBC_CMD", None)
    found = bundled and shutil.which(bundled.pulp_cbc_path)
    return found or shutil.which(pulp.COIN_CMD(msg=False).path)


def _is_known(executable: str) -> bool:
    """Whether its log is that of CBC 2, from which incumbents are read while it runs."""
    log = subprocess.run([executable, "-exit"], capture_output=True, text=True, check=False).stdout
    return "Version: 2." in log


CBC = _executable()
needs_cbc = pytest.mark.skipif(CBC is None, reason="PuLP finds no CBC here: pip install cbcbox")
needs_cbc_2 = pytest.mark.skipif(CBC is None or not _is_known(CBC), reason="needs CBC 2, as PuLP 3 brings it")
