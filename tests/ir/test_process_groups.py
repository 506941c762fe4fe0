"""Process groups: what texts mean, how groups become one collective, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.errors import InputError
from gapless.io.formats.groups_file import groups_from, read_groups
from gapless.ir.collective import COLLECTIVES, divided
from gapless.ir.process_groups import Group, Groups, along_axes, groups_of, read_group


def test_the_last_axis_is_the_one_along_which_groups_are() -> None:
    assert along_axes({"tp": 4}, 8) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert along_axes({"tp": 2, "dp": 2}, 8) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert along_axes({"tp": 2, "pp": 2, "dp": 2}, 8) == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_texts_name_ranks_or_axes_and_what_differs() -> None:
    assert read_group("0-2,6") == ([0, 1, 2, 6], "", None)
    assert read_group("tp=8,dp=4:alltoall:64MB") == ({"tp": 8, "dp": 4}, "alltoall", 64_000_000)
    assert read_group(" 3,1 :: 1KB") == ([3, 1], "", 1000)
    found = groups_of(["a=2", "1,2:broadcast:5B"], 4, "allgather", 7, root=1)
    assert found == [
        Group("allgather", (0, 1), 7), Group("allgather", (2, 3), 7), Group("broadcast", (1, 2), 5, root=1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp=3", "the 3 ranks of tp=3 must divide the 8"),
        ("tp=1", "axis tp must have two ranks or more, got 1"),
        ("tp=2,tp=2", "axes must have different names"),
        ("tp=2,3", "must be axes (tp=8,dp=4) or ranks (0-7,16-23)"),
        ("x", "must be axes"),
        ("", "must be axes"),
        ("4-2", "ranks must be two or more"),
        ("1,1", "ranks must be two or more, each once, got 1, 1"),
        ("0-9999999", "at most 1,000,000 ranks"),
        ("0-1:allgathr", "did you mean 'allgather'?"),
        ("0-1:allgather:1XB", "must be a number and a unit"),
        ("0-1:allgather", "size: must be given"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        groups_of([text], 8, "allgather", None if "size" in message else 5)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_root_is_for_those_that_have_one() -> None:
    with pytest.raises(InputError, match="root: must be left out"):
        groups_of(["0-3"], 8, "allgather", 1, root=1)
    with pytest.raises(InputError, match="root must be in"):
        Groups(tuple(groups_of(["4-7"], 8, "broadcast", 1, root=4))).joined(8)
    with pytest.raises(InputError, match="ranks must be in"):
        Groups(tuple(groups_of(["7-8"], 8, "broadcast", 1))).joined(8)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_a_group_has_the_buffers_of_its_collective(name: str) -> None:
    group = Group(name, (5, 1, 3), 300)
    joined = Groups((group,)).joined(6)
    alone = group.among_itself()
    for mine, its in ((joined.inputs, alone.inputs), (joined.outputs, alone.outputs)):
        assert tuple(mine[rank] for rank in group.ranks) == its
        assert not any(mine[rank] for rank in (0, 2, 4))
    # A group that is cut is the collective that is cut: exports take the named one.
    cut, named = divided(joined, 4), group.among_itself(4)
    assert tuple(cut.inputs[rank] for rank in group.ranks) == named.inputs
    assert tuple(cut.outputs[rank] for rank in group.ranks) == named.outputs


def test_chunks_are_of_one_size_and_fit_all_shares() -> None:
    def chunks(*sizes: int) -> tuple[int, list[int]]:
        groups = Groups(tuple(Group("broadcast", (0, 1), size) for size in sizes))
        return groups.chunk_bytes, groups.chunk_counts

    assert chunks(1000, 1000) == (1000, [1, 1])
    assert chunks(1000, 8000) == (1000, [1, 8])
    assert chunks(2000, 5000) == (1000, [2, 5])
    size, counts = chunks(1000, 1417)  # nothing divides both: rounded up by 1 %
    assert sum(count * size for count in counts) <= 1.01 * 2417


def test_a_description_is_read_back() -> None:
    groups = Groups((Group("reduce", (3, 1), 10, root=1), Group("allgather", (0, 2), 10)), relays=False)
    assert groups_from(groups.description, "plan") == groups


def test_a_file_says_who_does_what(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    head = '{"format": "gapless.groups", "version": 1, "groups": '
    path.write_text(
        head + '[{"axes": "ep=2", "size": "2KB"}, {"ranks": [0, 3], "collective": "reduce", "root": 1}]}  // both\n'
    )
    assert read_groups(path, 4, "alltoall", 5) == [
        Group("alltoall", (0, 1), 2000), Group("alltoall", (2, 3), 2000), Group("reduce", (0, 3), 5, root=1),
    ]  # fmt: skip
    for entry, message in (
        ("{}", "must have axes or ranks, one of them"),
        ('{"ranks": [0, 1], "axes": "a=2"}', "must have axes or ranks"),
        ('{"ranks": [0, 1], "siz": "1KB"}', "field 'siz' is unknown; did you mean 'size'?"),
        ('{"axes": "a=3"}', "groups[0]: group: the 3 ranks of a=3 must divide the 4"),
        ('{"axes": "a=2", "collective": "gossip"}', "collective: must be one of"),
    ):
        path.write_text(f"{head}[{entry}]}}")
        with pytest.raises(InputError) as caught:
            read_groups(path, 4, "alltoall", 5)
        assert message in str(caught.value)
