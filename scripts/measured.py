#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""models/measured/: the public runs that validate scores, and what the planner says of them.

measured.py SHARDPLAN               check table.json against what the program predicts now
measured.py SHARDPLAN --write       write it anew (after a change of a law or constant)
measured.py SHARDPLAN --import RUNS take the scored rows of a runs file into runs.json, then write
"""
import json
import os
import subprocess
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "measured")
RUNS, TABLE = os.path.join(FOLDER, "runs.json"), os.path.join(FOLDER, "table.json")
KEYS = """id source model gpu gpus_total gpus_per_node interconnect_inter framework
    framework_version strategy hybrid_shard_group tp pp cp ep offload seq_len micro_batch_per_gpu
    grad_accum param_dtype reduce_dtype optimizer activation_checkpointing attention compile
    float8 measured tier value_kind notes score kernels""".split()
TOLERANCE = 0.005  # of a predicted step; beyond it the printed error would be another


def predict(program, runs):
    done = subprocess.run([program, "validate", runs, "--json", "-", "--quiet"],
                          capture_output=True, text=True, check=True, timeout=300)
    rows = json.loads(done.stdout)["rows"]
    return [r for r in rows if r["scored"] and r["metric"] == "step_time"]


def slim(value):
    if isinstance(value, dict):
        return {k: slim(v) for k, v in value.items() if v is not None and v != []}
    return value


def take(program, path):
    scored = {r["id"] for r in predict(program, path)}
    with open(path, encoding="utf-8") as f:
        rows = [r for r in json.load(f) if r["id"] in scored]
    lines = [json.dumps(slim({k: r.get(k) for k in KEYS})) for r in rows]
    with open(RUNS, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(lines) + "\n]\n")


def table(program):
    rows = []
    for r in predict(program, RUNS):
        run = r["run"]
        rows.append({"id": r["id"], "source": r["source"], **run, "measured_s": r["measured"],
                     "predicted_s": float("%.6g" % r["predicted"])})
    return rows


def write(program):
    rows = table(program)
    with open(TABLE, "w", encoding="utf-8") as f:
        f.write('{"schema": "shardplan.measured/1", "runs": [\n')
        f.write(",\n".join(json.dumps(r) for r in rows) + "\n]}\n")


def check(program):
    with open(TABLE, encoding="utf-8") as f:
        stored = {r["id"]: r for r in json.load(f)["runs"]}
    now = {r["id"]: r for r in table(program)}
    wrong = sorted(set(stored) ^ set(now))
    wrong += [i for i in now if i in stored and
              abs(stored[i]["predicted_s"] / now[i]["predicted_s"] - 1) > TOLERANCE]
    wrong += [i for i in now if i in stored and
              {k: v for k, v in stored[i].items() if k != "predicted_s"} !=
              {k: v for k, v in now[i].items() if k != "predicted_s"}]
    for i in wrong[:10]:
        print(f"{i}: table.json says {stored.get(i, {}).get('predicted_s')} s, the program "
              f"{now.get(i, {}).get('predicted_s')} s")
    if wrong:
        print(f"{len(wrong)} of {len(now)} rows differ: scripts/measured.py {program} --write")
    return len(wrong) > 0


def main(words):
    if len(words) == 3 and words[1] == "--import":
        take(words[0], words[2])
        return write(words[0]) or 0
    if len(words) == 2 and words[1] == "--write":
        return write(words[0]) or 0
    if len(words) == 1:
        return check(words[0])
    print(__doc__.strip())
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
