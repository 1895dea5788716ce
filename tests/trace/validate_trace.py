#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check a trace written by `shardplan simulate --trace` against docs/formats.md §trace.

usage: validate_trace.py TRACE.json
Every violation is printed; exit 1 when there is one.
"""
import json
import math
import sys


def finite(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def validate(trace):
    """Violations of one parsed trace, as text."""
    wrong = []
    if set(trace) != {"displayTimeUnit", "traceEvents"}:
        wrong.append(f"top-level keys are {sorted(trace)}")
    if trace.get("displayTimeUnit") not in ("ms", "ns"):
        wrong.append("displayTimeUnit is neither ms nor ns")
    threads, ends, last_counter = {}, {}, -1.0
    ids, counters, seen_phases = [], 0, set()
    for i, e in enumerate(trace.get("traceEvents", [])):
        where = f"event {i}"
        for key in ("ph", "name", "pid", "tid"):
            if key not in e:
                wrong.append(f"{where}: no {key}")
        kind = e.get("ph")
        if kind == "M":
            if e["name"] == "thread_name":
                threads[e["tid"]] = e["args"]["name"]
            elif e["name"] not in ("process_name", "thread_sort_index"):
                wrong.append(f"{where}: metadata {e['name']}")
        elif kind == "X":
            ts, dur = e.get("ts"), e.get("dur")
            if not finite(ts) or not finite(dur) or ts < 0 or dur < 0:
                wrong.append(f"{where}: ts {ts}, dur {dur}")
                continue
            if e["tid"] not in threads:
                wrong.append(f"{where}: thread {e['tid']} has no name before it")
            # Nine digits are written: neighbours may overlap by that much.
            slack = 1e-8 * (ts + dur) + 1e-6
            if ts < ends.get(e["tid"], 0) - slack:
                wrong.append(f"{where}: {e['name']} overlaps its predecessor on the stream")
            ends[e["tid"]] = ts + dur
            seen_phases.add(e.get("cat"))
            ids.append(e["args"]["id"])
            if not isinstance(e["args"]["exposed"], bool):
                wrong.append(f"{where}: exposed is not a boolean")
        elif kind == "C":
            counters += 1
            if not finite(e["args"].get("bytes")) or e["args"]["bytes"] < 0:
                wrong.append(f"{where}: bytes {e['args'].get('bytes')}")
            if e["ts"] < last_counter:
                wrong.append(f"{where}: the counter goes back in time")
            last_counter = e["ts"]
        else:
            wrong.append(f"{where}: kind {kind!r}")
    if sorted(ids) != list(range(len(ids))):
        wrong.append("task ids are not 0..n-1, each once")
    if not ids:
        wrong.append("no task")
    if counters < 2:
        wrong.append("memory is no curve")
    if seen_phases - {"forward", "backward", "optimizer"}:
        wrong.append(f"phases {sorted(seen_phases)}")
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        wrong = validate(json.load(f))
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
