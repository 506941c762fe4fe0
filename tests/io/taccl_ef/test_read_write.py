"""The reader and the writer: what is written is read back alike, and what a runtime misreads is refused by name."""

from __future__ import annotations

import dataclasses
import re

import pytest

from gapless.errors import InputError
from gapless.io.taccl_ef import lower, parse_xml, read_program, verify, write_program, xml_text


@pytest.mark.parametrize("placement", ["in-place", "out-of-place", "both"])
def test_what_is_written_is_read_back_alike_without_warnings(case, placement):
    collective, schedule = case
    program = lower(schedule, collective, instances=2, placement=placement, proto="LL128", min_bytes=7, max_bytes=2**30)
    assert parse_xml(xml_text(program), "text") == (program, [])


def test_optional_attributes_survive_the_round_trip(exchange):
    program = dataclasses.replace(exchange, nthreads=256, redop="sum")
    assert parse_xml(xml_text(program), "text") == (program, [])


def test_a_file_is_read_back_alike(exchange, tmp_path):
    write_program(tmp_path / "exchange.xml", exchange)
    assert read_program(tmp_path / "exchange.xml") == (exchange, [])


def test_the_text_obeys_the_lexical_rules(exchange):
    text = xml_text(exchange)
    assert text.startswith("<algo name=")
    assert text.isascii()
    assert text.endswith("</algo>\n")
    assert not set("\t\r'&") & set(text)
    assert not re.search(r"[^ \n]  ", text)
    for required in ("inplace", "outofplace", "minBytes", "maxBytes", "nchannels", "nchunksperloop", "ngpus", "coll"):
        assert f' {required}="' in text.splitlines()[0]


@pytest.mark.parametrize("name", ["a" * 64, 'say "x"', "a<b", "a\tb", "naïve", "R&D"])
def test_names_that_a_parser_would_misread_are_not_written(exchange, name):
    with pytest.raises(InputError, match="taccl-ef name: must"):
        xml_text(dataclasses.replace(exchange, name=name))


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none\.xml: No such file"):
        read_program(tmp_path / "none.xml")
    (tmp_path / "latin.xml").write_bytes(b'<algo name="\xe9">')
    with pytest.raises(InputError, match=r"latin\.xml: must be a UTF-8 text file, got byte 0xe9"):
        read_program(tmp_path / "latin.xml")


def test_comments_and_attributes_in_another_order_are_read(exchange):
    text = xml_text(exchange)
    text = "<!-- made by hand -->\n<!-- two\nlines -->" + text.replace("<tb ", "<!-- inside --><tb ")
    text = text.replace('send="1" recv="-1"', 'recv="-1" send="1"').replace('"/>', '" />')
    assert parse_xml(text, "text") == (exchange, [])


@pytest.mark.parametrize(
    ("attribute", "runtime", "field", "value"),
    [
        ("outofplace", "executor", "outofplace", True),
        ("minBytes", "executor", "min_bytes", 0),
        ("maxBytes", "executor", "max_bytes", 2**27),
        ("name", "original", "name", ""),
    ],
)
def test_an_attribute_that_one_runtime_requires_is_a_fault_there_and_has_the_others_default(
    exchange, attribute, runtime, field, value
):
    program, warnings = parse_xml(re.sub(f' {attribute}="[^"]*"', "", xml_text(exchange)), "f.xml")
    assert (getattr(program, field), program.absent, warnings) == (value, {attribute}, [])
    (other,) = {"executor", "original"} - {runtime}
    assert verify(program, other) == []
    for strict in (runtime, "both"):
        assert [(each.rule, each.message.split()[0]) for each in verify(program, strict)] == [("attribute", attribute)]


def test_lines_may_end_as_on_windows(exchange, tmp_path):
    (tmp_path / "dos.xml").write_bytes(xml_text(exchange).replace("\n", "\r\n").encode())
    assert read_program(tmp_path / "dos.xml") == (exchange, [])


def test_unknown_elements_and_attributes_are_skipped_with_a_warning(exchange):
    text = xml_text(exchange).replace("<tb ", '<note about="x"><tb id="9"/></note>\n<tb ', 1)
    text = text.replace('s_chunks="0"', 's_chunks="0" color="red"', 1)
    program, warnings = parse_xml(text, "f.xml")
    assert program == exchange
    assert warnings == ["f.xml:2: gpu 0: attribute color is skipped", "f.xml:3: <note> inside <gpu> is skipped"]


MISTAKES = {
    "xml declaration": ("<algo", '<?xml version="1.0"?>\n<algo', "f.xml:1: an XML declaration is not allowed"),
    "doctype": ("<algo", '<!DOCTYPE a [<!ENTITY b "c">]>\n<algo', "f.xml:1: a DOCTYPE is not allowed"),
    "cdata": ("<tb id", "<![CDATA[x]]><tb id", "only comments may start with '<!'"),
    "open comment": ("</algo>", "</algo>\n<!-- and", "f.xml:25: a comment is not closed"),
    "tab": ("  <gpu", "\t<gpu", "f.xml:2: tabs are not allowed"),
    "carriage return in a tag": (' chan="0"', '\r chan="0"', "f.xml:3: all attributes of an element must be on one"),
    "comment read as a name": ("<algo", "<!--key=value-->\n<algo", "f.xml:1: a comment's first word must hold no '='"),
    "comment of one long word": ("<algo", f"<!--{'-' * 300}-->\n<algo", "a comment's first word must have at most 255"),
    "tab in a tag": ("<tb id", "<tb\tid", "f.xml:3: tabs are not allowed"),
    "single quotes": ('cnt="1"', "cnt='1'", "f.xml:4: attribute values must be in double quotes"),
    "attribute on a second line": (' chan="0"', '\n chan="0"', "f.xml:3: all attributes of an element must be on one"),
    "no quotes": ('cnt="1"', "cnt=1", 'f.xml:4: attributes must be name="value"'),
    "text": ("</tb>", "hello</tb>", "f.xml:5: only spaces and newlines may stand between elements, got 'hello'"),
    "tag not closed": ("</algo>", "</algo", "the element is not closed with '>'"),
    "element not closed": ("</algo>", "", "<algo> is not closed"),
    "wrong closing tag": ("</tb>", "</gpu>", "f.xml:5: </gpu> closes <tb>"),
    "closed twice": ("</algo>", "</algo></algo>", "</algo> closes no element"),
    "second algo": ("</algo>", "</algo><algo>", "there must be one <algo> element, got a second one"),
    "other root": ("<algo", "<plan/><algo", "the outermost element must be <algo>, got <plan>"),
    "garbage number": ('cnt="1"', 'cnt="one"', "f.xml:4: gpu 0 tb 0 step 0: cnt must be an integer, got 'one'"),
    "empty number": ('srcoff="0"', 'srcoff=""', "f.xml:4: gpu 0 tb 0 step 0: srcoff must be an integer, got ''"),
    "number too large": ('chan="0"', f'chan="{10**18 * 10}"', "gpu 0 tb 0: chan must be an integer"),
    "missing attribute": (' hasdep="0"', "", "f.xml:4: gpu 0 tb 0 step 0: attribute hasdep is missing"),
    "missing collective": (' coll="allgather"', "", "f.xml:1: algo: attribute coll is missing"),
    "attribute twice": ('cnt="1"', 'cnt="1" cnt="1"', "f.xml:4: gpu 0 tb 0 step 0: an attribute stands twice"),
    "unknown type": ('type="s"', 'type="send"', "gpu 0 tb 0 step 0: type must be one of s, r, rcs, .*, got 'send'"),
    "unknown buffer": ('srcbuf="i"', 'srcbuf="input"', "gpu 0 tb 0 step 0: srcbuf must be one of i, o, s, got 'input'"),
    "flag that is none": ('hasdep="0"', 'hasdep="2"', "gpu 0 tb 0 step 0: hasdep must be one of 0, 1, got '2'"),
    "too many attributes": ("<tb", "<tb" + "".join(f' a{k}="0"' for k in range(14)), "must have at most 16 attributes"),
    "value too long": ('name="by_hand"', f'name="{"n" * 256}"', "algo: names and values must have at most 255"),
}


@pytest.mark.parametrize("title", MISTAKES)
def test_what_a_runtime_would_misread_is_refused_by_line_and_attribute(exchange, title):
    old, new, message = MISTAKES[title]
    text = xml_text(exchange)
    assert old in text
    with pytest.raises(InputError, match=r"f\.xml:") as caught:
        parse_xml(text.replace(old, new, 1), "f.xml")
    assert re.search(message.replace("[", r"\["), str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " \n", "<!-- nothing -->", "algo", "<", "<algo"])
def test_a_text_without_an_algo_is_refused(text):
    with pytest.raises(InputError, match=r"f\.xml:1: "):
        parse_xml(text, "f.xml")
