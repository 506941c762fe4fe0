"""Schedules with a few random changes, most of which break a rule."""

from __future__ import annotations

import random
from dataclasses import replace

from gapless.ir.schedule import Schedule, schedule_from_events

CHANGES = ["shift", "stretch", "place", "moves", "reduces", "frees", "drop", "repeat", "op", "swap"]


def corrupted(schedule: Schedule, chance: random.Random) -> Schedule:
    """The schedule with a few random changes, and sometimes with less memory."""
    events = list(schedule.events())
    for _ in range(chance.randint(1, 3)):
        if not events:
            break
        number = chance.randrange(len(events))
        event = events[number]
        shift = chance.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0])
        change = chance.choice(CHANGES)
        if change == "shift":
            events[number] = replace(event, start_s=event.start_s + shift, end_s=event.end_s + shift)
        elif change == "stretch":
            events[number] = replace(event, end_s=event.end_s + shift)
        elif change == "place":
            events[number] = replace(event, place=chance.randint(-1, 6))
        elif change == "moves":
            moves = tuple(chance.choices(range(-1 if chance.random() < 0.1 else 0, 7), k=chance.randint(0, 3)))
            events[number] = replace(event, moves=moves)
        elif change == "reduces":
            events[number] = replace(event, reduces=not event.reduces)
        elif change == "frees":
            copies = [(chance.randrange(7), chance.randrange(3)) for _ in range(chance.randint(0, 2))]
            events[number] = replace(event, frees=tuple(copies))
        elif change == "drop":
            del events[number]
        elif change == "repeat":
            events.append(replace(event, start_s=event.start_s + abs(shift), end_s=event.end_s + abs(shift)))
        elif change == "op":
            events[number] = replace(event, op=chance.randint(-1, 4), implementation=chance.randint(0, 3))
        else:
            other = chance.randrange(len(events))
            events[number], events[other] = events[other], event
    memory = (float(chance.randint(0, 12)),) * schedule.topology.device_count
    topology = replace(schedule.topology, memory_bytes=memory) if chance.random() < 0.3 else schedule.topology
    return schedule_from_events(schedule.graph, topology, events)
