"""The intermediate representation of all problems: graphs, schedules, collectives, and schedules under other costs."""
