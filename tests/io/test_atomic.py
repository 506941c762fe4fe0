"""Files are replaced whole; what is no file is written into."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from spawned import spawn

from gapless.io.atomic import check_writable, write_lines, write_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and devices with names")


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    check_writable(pipe)
    write_text(pipe, "plan")
    reader.join(10)
    assert got == ["plan"]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_device_is_never_replaced(tmp_path: Path) -> None:
    link = tmp_path / "plan.json"
    link.symlink_to(os.devnull)
    check_writable(link)
    write_text(link, "plan")
    assert link.is_symlink()
    assert Path(os.devnull).is_char_device()
    assert list(tmp_path.iterdir()) == [link]


def test_a_link_to_a_file_stays_and_the_file_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "there.json", tmp_path / "plan.json"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_a_line() -> None:
    with open("/dev/full", "w") as full:
        process = spawn("list", "profiles", stdout=full)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 2
    assert err == "gapless: error: cannot write to stdout: No space left on device\n"


def test_lines_that_end_in_an_error_leave_the_old_file(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "one\n"
        raise ValueError("no second line")

    target = tmp_path / "plan.xml"
    write_lines(target, ["old\n", "lines\n"])
    with pytest.raises(ValueError, match="no second line"):
        write_lines(target, lines())
    assert target.read_text() == "old\nlines\n"
    assert list(tmp_path.iterdir()) == [target]
