"""The reader: what is not covered or not of the format is refused in one line that names field, rule and value."""

from __future__ import annotations

import json
import re

import pytest
from hand_made_collectives import ring_allgather

from gapless.errors import InputError
from gapless.io.mscclpp import is_plan, lower, parse_plan, plan_text, read_plan, write_plan

PLAN = lower(*ring_allgather(2)[::-1])


def test_a_file_is_read_back_alike(tmp_path):
    write_plan(tmp_path / "plan.json", PLAN)
    assert read_plan(tmp_path / "plan.json") == PLAN
    assert is_plan(tmp_path / "plan.json")


def test_other_files_are_no_plans(tmp_path):
    for name, text in {"a": "{}", "b": '{"format": "gapless.plan", "gpus": []}', "c": "no json", "d": "[1]"}.items():
        (tmp_path / name).write_text(text)
        assert not is_plan(tmp_path / name)
    assert not is_plan(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert not is_plan(tmp_path / "bytes")


MISTAKES = {
    "packets": ('"protocol": "Simple"', '"protocol": "LL"', 'protocol: must be one of Simple, got "LL"'),
    "reused scratch": ('"reuse_resources": false', '"reuse_resources": true', "reuse_resources: must be false"),
    "no chunks": ('"input_chunks": 1', '"input_chunks": 0', "gpus[0]: input_chunks: must be a whole number in 1.."),
    "unknown operation": (
        '"name": "nop"', '"name": "ppkt"', 'ops[1]: name: must be one of copy, flush, get, glres, .*, got "ppkt"',
    ),
    "unknown field": ('{"name": "nop"}', '{"name": "nop", "tbg_info": {}}', "field 'tbg_info' is unknown"),
    "unknown channel": ('"channel_type": "memory"', '"channel_type": "wire"', "must be one of memory, port, switch"),
    "switch without ranks": (
        '"channel_type": "memory", "connected_to"', '"channel_type": "switch", "connected_to"',
        "must have buffer_type and rank_groups",
    ),
    "another reduction": ('{"name": "nop"}', '{"name": "nop", "reduce_op": "max"}', "reduce_op: must be one of sum"),
    "no place": ('"type": "i", "index"', '"index"', "src_buff[0]: type: must be there, or buffer_id"),
    "empty span": ('"size": 1', '"size": 0', "size: must be a whole number in 1..2147483647, got 0"),
    "no gpus": ('"gpus": [', '"gpus": [], "gpu": [', "gpus: must be a list of at least 2 GPUs"),
}  # fmt: skip


@pytest.mark.parametrize("title", MISTAKES)
def test_what_is_not_covered_is_refused_in_one_line(title):
    old, new, message = MISTAKES[title]
    text = plan_text(PLAN)
    assert old in text
    with pytest.raises(InputError) as caught:
        parse_plan(text.replace(old, new, 1), "p.json")
    assert re.search(message.replace("[", r"\["), str(caught.value)), str(caught.value)
    assert str(caught.value).startswith("p.json: ")
    assert "\n" not in str(caught.value)


def test_optional_fields_have_the_executors_defaults():
    data = json.loads(plan_text(PLAN))
    optional = ("num_threads_per_block", "use_double_scratch_buffer", "buffer_alignment", "reuse_resources")
    for field in (*optional, "min_message_size", "max_message_size"):
        del data[field]
    for gpu in data["gpus"]:
        del gpu["semaphores"]
    assert parse_plan(json.dumps(data), "p.json") == PLAN
