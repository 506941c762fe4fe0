"""JSON objects are read field by field, and every broken rule names file, field and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.errors import InputError
from gapless.io.record import Record, load_record, parse_record


def test_comments_are_blanked_but_not_inside_strings() -> None:
    record = parse_record('{"a": "http://x", // say "why"\n "b": "c\\"//d" }', "f")
    assert record.text("a") == "http://x"
    assert record.text("b") == 'c"//d'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"f: not JSON: .* at line 1, column 2"),
        ("[1]", r"f: must be a JSON object \{\.\.\.\}, got \[1\]"),
        ('{"a": NaN}', r"f: numbers must be finite, got NaN"),
        ('{"a": 1e999}', r"f: a: numbers must be finite"),
        ('{"a": 1, "a": 2}', r"f: field 'a' stands twice"),
        ("\ufeff{}", r"f: must not start with a byte order mark; save it as UTF-8 without one"),
        ("[" * 100_000, r"f: (not JSON|not readable|must be)"),
        ('{"a": ' + "9" * 5000 + "}", r"f: not readable"),
    ],
)
def test_text_that_is_no_plain_object_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_record(text, "f").number("a")


def test_missing_unreadable_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*gone.json: No such file"):
        load_record(tmp_path / "gone.json")
    with pytest.raises(InputError, match=r"cannot read .*: Is a directory"):
        load_record(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"must be a UTF-8 text file, got byte 0xff"):
        load_record(tmp_path / "binary.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "gapless.plan"}', "must be gapless.topology, got .*; this is a plan, which check, show"),
        ('{"format": "gapless.topologies"}', 'must be gapless.topology, got "gapless.topologies"$'),
        ('{"format": "oldname.topology"}', "; the project was renamed: write 'gapless.topology' as the file's format$"),
        ('{"format": ["gapless.plan"]}', "must be gapless.topology, got"),
        ("{}", "field 'format' is missing"),
    ],
)
def test_files_of_another_format_are_refused_and_what_they_are_is_said(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_record(text, "f").of_format("gapless.topology")
    parse_record('{"format": "gapless.topology"}', "f").of_format("gapless.topology")


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (lambda r: r.number("text"), r'where: text: must be a number, got "x"'),
        (lambda r: r.number("flag"), r"where: flag: must be a number, got true"),
        (lambda r: r.number("minus", minimum=0), r"where: minus: must be a number >= 0, got -1"),
        (lambda r: r.integer("half", 0), r"where: half: must be a whole number >= 0, got 0.5"),
        (lambda r: r.integer("seven", 0, 5), r"where: seven: must be a whole number in 0..5, got 7"),
        (lambda r: r.boolean("seven"), r"where: seven: must be true or false, got 7"),
        (lambda r: r.text("seven"), r"where: seven: must be a string, got 7"),
        (lambda r: r.text("text", choices=["xy"]), r"must be one of xy, got \"x\"; did you mean 'xy'\?"),
        (lambda r: r.array("text"), r"where: text: must be a list"),
        (lambda r: r.integers("list", 0), r"where: list\[1\]: must be a whole number >= 0, got -2"),
        (lambda r: r.record("list"), r"where: list: must be a JSON object"),
        (lambda r: r.raw("gone"), r"where: field 'gone' is missing; there are text, flag, minus, half, seven, list$"),
        (lambda r: Record({}, "empty").raw("gone"), r"empty: field 'gone' is missing; there is none$"),
        (lambda r: Record(dict.fromkeys("abcdefghi"), "long").raw("z"), r"there are a, b, c, d, e, f, g, h, \.\.\.$"),
        (lambda r: r.integer("seven", 2, 2), r"where: seven: must be 2, got 7$"),
        (lambda r: r.close(), r"where: field 'text' is unknown"),
    ],
)
def test_broken_rule_names_place_field_and_value(reader: object, message: str) -> None:
    data = {"text": "x", "flag": True, "minus": -1, "half": 0.5, "seven": 7, "list": [1, -2]}
    with pytest.raises(InputError, match=message):
        reader(Record(data, "where"))  # type: ignore[operator]


def test_defaults_stand_in_for_absent_fields_only() -> None:
    record = Record({"a": 1}, "where")
    assert record.integer("a", 0, default=9) == 1
    assert record.integer("b", 0, default=9) == 9
    assert record.record("c", default=None) is None


def test_null_is_no_list_even_where_the_field_may_be_left_out() -> None:
    record = parse_record('{"a": null}', "f")
    with pytest.raises(InputError, match="f: a: must be a list, got null"):
        record.integers("a", 0, default=None)
    assert record.integers("b", 0, default=None) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<algo name='a' nchannels='1'/>", "TACCL-EF XML, which `gapless check` executes"),
        ("<?xml version='1.0'?>\n<!DOCTYPE topology>\n<topology/>", "of which `gapless convert` makes a topology"),
        ("<system version='1'/>", "of which `gapless convert` makes a topology"),
        ("\t\x1b[4mGPU0\tGPU1\x1b[0m\nGPU0\t X \tNV2\n", "of which `gapless convert` makes a topology"),
        ("NAME taccl_routing FREE\n", "a model for a solver"),
    ],
)
def test_what_is_no_json_is_named_with_what_takes_it(text: str, kind: str) -> None:
    with pytest.raises(InputError, match=rf"not JSON: .*; this is .*{kind}"):
        parse_record(text, "file")


def test_text_of_no_known_kind_is_no_json_and_nothing_else() -> None:
    with pytest.raises(InputError, match=r"^file: not JSON: Expecting value at line 1, column 1$"):
        parse_record("hello", "file")
