"""Files made or changed to break their reader: one line, no more than 200 MB or 5 CPU s; drawn ones 300 MB.

Each is read in a process of its own (`support/forked_reads.py`). What one takes before it reads anything, about 60
MB, is taken off the limits; so is what it has loaded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hostile_files import HOSTILE
from more_read_cases import ALL

SUPPORT = Path(__file__).parent / "support"
LOADED_BYTES = 60 * 10**6
CPU_S = 5.0
DRAWN = 5000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures processes as Linux does")


def outcomes(script: str, *arguments: str) -> list[dict[str, Any]]:
    """What a script of `support` prints."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "GAPLESS_CACHE": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), str(Path(__file__).parents[1])])
    command = [sys.executable, str(SUPPORT / script), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert not run.returncode, run.stderr[-2000:]
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What came of each hostile file, by name."""
    found = outcomes("hostile_files.py", str(tmp_path_factory.mktemp("hostile")))
    return {one["name"]: one for one in found}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line_within_200_mb(hostile: dict[str, dict[str, Any]], name: str) -> None:
    found = hostile[name]
    assert found["kind"] == "refused", found
    assert len(found["said"].splitlines()) == 1
    assert re.search(HOSTILE[name].said, found["said"]), found["said"]
    assert found["grown_bytes"] + LOADED_BYTES < 200e6
    assert found["cpu_s"] <= CPU_S


@pytest.mark.thorough
def test_five_thousand_drawn_files_end_in_a_line_within_300_mb_and_5_s(tmp_path: Path) -> None:
    found = outcomes("forked_reads.py", str(28), str(-(-DRAWN // len(ALL))), str(tmp_path))
    counted = Counter(one["kind"] for one in found)
    print(dict(counted))
    assert len(found) >= DRAWN
    assert set(counted) == {"taken", "refused"}, [one for one in found if one["kind"] not in ("taken", "refused")][:3]
    assert not [one for one in found if len(one["said"].splitlines()) > 1]
    assert not [one for one in found if one["grown_bytes"] + LOADED_BYTES > 300e6]
    assert not [one for one in found if one["cpu_s"] > CPU_S]
