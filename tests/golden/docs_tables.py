#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/validation.md equal what the program and the goldens say today.

usage: docs_tables.py [--write]     (--write puts today's figures into its rows)
"""
import collections
import json
import os
import statistics
import subprocess
import sys

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
ROOT = os.environ["SHARDPLAN_SOURCE_ROOT"]
DOCUMENT = os.path.join(ROOT, "docs", "validation.md")
GIB, MIB = 2**30, 2**20


def load(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return json.load(f)


def golden(name):
    return load("tests", "oracle", "golden", name + ".json")


def program(*words):
    done = subprocess.run([PROGRAM, *words, "--json", "-", "--quiet"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def validated():
    return program("validate", os.path.join(ROOT, "tests", "fixtures", "validation", "memory_runs.json"))


def memory_rows():
    for r in validated()["rows"]:
        if r["metric"] == "memory" and r["scored"]:
            span = f"{r['low'] / GIB:.1f}–{r['high'] / GIB:.1f}" if r["low"] else "–"
            yield (f"| {r['id']} |", f"| {r['measured'] / GIB:.2f} | {r['predicted'] / GIB:.2f} | "
                   f"{span} | {r['predicted'] / r['measured'] - 1:+.1%} |".replace("%", " %"))


def memory_scores():
    m = validated()["memory"]
    yield (f"Mean over rows {m['mape'] * 100:.2f} %, mean of the sources' means "
           f"{m['macro_mape'] * 100:.2f} %.", "")


def peers_row(case):
    """`case` as the table writes it: model, N GPUs, strategy, recomputation."""
    model, gpus, strategy, recompute = (w.strip() for w in case.split(","))
    words = ["plan", model, "dgx-a100", "--nodes", str(int(gpus.split()[0]) // 8), "--seq", "4096",
             "--strategy", strategy, "--recompute", recompute]
    if strategy == "ddp":
        words += ["--set", "recipe.gradient_as_bucket_view=true", "--set", "recipe.optimizer_fused=true"]
    m = program(*words)["plans"][0]["memory"]
    states, activations, peak = (m[k] / GIB for k in ("steady_bytes", "activations_bytes",
                                                      "allocated_peak_bytes"))
    return f"{states:.1f} / {activations:.1f} / **{peak:.1f}**"


def saved_tensor_rows():
    names = ["Llama, grouped keys, flash attention, bf16", "the same in fp32",
             "Llama, math attention, bf16", "GPT-2, flash attention, dropout, bf16",
             "GPT-2, math attention, dropout, bf16"]
    for name, case in zip(names, golden("saved_tensors")["cases"]):
        yield f"| {name} |", f"| {case['bytes_per_token']:.0f} | {case['bytes_per_token']:.0f} |"


def call_rows():
    for file, title in (("torch_collectives", "torch, 8 ranks"),
                        ("deepspeed_calls", "DeepSpeed, 2 and 4 ranks")):
        sums = collections.OrderedDict()
        for c in golden(file)["cases"]:
            s = sums.setdefault(c["strategy"], [0, 0, 0])
            s[0] += 1
            s[1] += len(c["calls"])
            s[2] += sum(x[3] for x in c["calls"])
        for strategy, (cases, calls, size) in sums.items():
            yield f"| {title} | {strategy} |", f"| {cases} | {calls} | {size} |"


def copy_rows():
    for c in golden("deepspeed_copies")["cases"]:
        yield f"| {c['strategy']} | {c['name']} | {c['h2d']} | {c['d2h']} | 0 |", ""


def case_counts():
    cases = load("tests", "cases", "plan_cases.json")
    checks = load("tests", "cases", "check_cases.json")["cases"]
    plan = {c["id"] for c in cases["cases"]}
    other = sorted({c["id"] for c in checks} - plan)
    yield (f"{len(plan)} reported cases are held as runs and checks in", "")
    yield (f"{len(cases['not_answered_by_plan'])} more are listed there with", "")
    yield (f"{len(checks)} cases are held to `check` and `explain` in", "")
    yield (", ".join(other) + ".", "")
    listed = " ".join(open(DOCUMENT).read().split())
    if "By id (C…): " + " ".join(c["id"][1:] for c in cases["cases"]) + "." not in listed:
        yield ("By id (C…): the ids of plan_cases.json", "")


def oracle_rows():
    """compare.py's own table of the memory oracles."""
    compare = os.path.join(ROOT, "tests", "oracle", "compare.py")
    for name in ("torch_memory", "deepspeed_memory"):
        path = os.path.join(ROOT, "tests", "oracle", "golden", name + ".json")
        done = subprocess.run([sys.executable, compare, "--table", PROGRAM, path],
                              capture_output=True, text=True)
        if not done.stdout:
            raise SystemExit(done.stderr)
        for line in done.stdout.splitlines():
            yield line, ""


HELD_OUT = {"step_time": "step", "memory": "memory"}


def held_out():
    return program("validate", os.path.join(ROOT, "tests", "held_out", "runs.json"))


def blind():
    """What was said of the rows before anything was changed for their sake: id, metric -> fraction."""
    with open(os.path.join(ROOT, "tests", "held_out", "blind.tsv")) as f:
        lines = [x.split("\t") for x in f.read().splitlines()[1:]]
    return {(x[0], x[1]): float(x[3]) / float(x[2]) - 1 for x in lines}


def held_out_rows():
    first, rows = blind(), [r for r in held_out()["rows"] if r["scored"]]
    if {(r["id"], r["metric"]) for r in rows} != set(first):
        yield "the scored rows are those of blind.tsv", ""
    for r in rows:
        now, unit = r["predicted"] / r["measured"] - 1, 1 if r["metric"] == "step_time" else GIB
        yield (f"| {r['id']} | {HELD_OUT[r['metric']]} |",
               f"| {r['measured'] / unit:.4g} | {r['predicted'] / unit:.4g} | "
               f"{first[r['id'], r['metric']] * 100:+.0f} | {now * 100:+.0f} |")


def held_out_scores():
    first, rows = blind(), [r for r in held_out()["rows"] if r["scored"]]
    for name, metric, group in (("data parallel, step", "step_time", "data_parallel"),
                                ("mixed, step", "step_time", "mixed"),
                                ("float8, step", "step_time", "float8"), ("memory", "memory", None)):
        mine = [r for r in rows if r["metric"] == metric and group in (None, r["group"])]
        figures = [len(mine)]
        for ape in ([abs(first[r["id"], metric]) for r in mine], [r["ape"] for r in mine]):
            by_source = collections.defaultdict(list)
            for r, x in zip(mine, ape):
                by_source[r["source"].split(",")[0].split(" Table")[0].split(" (")[0]].append(x)
            means = [statistics.mean(x) for x in by_source.values()]
            figures += [f"{100 * x:.1f}" for x in (statistics.mean(ape), statistics.mean(means),
                                                   statistics.median(ape))]
        yield f"| {name} |", "| " + " | ".join(map(str, figures + [f"{100 * max(ape):.0f}"])) + " |"


STEP_GROUPS = {"data_parallel": "data parallel", "mixed": "mixed (tensor, pipeline)",
               "float8": "float8 (3 rows: no claim)",
               "exposed communication or offload >= 10 %": "exposed communication or offload ≥ 10 %"}


def step_scores():
    """Of the runs that come with the catalog."""
    v = program("validate")
    for g in v["by_group"]:
        if g["metric"] == "step_time" and g["name"] in STEP_GROUPS:
            s = g["score"]
            means = " | ".join(f"{100 * s[k]:.1f}" for k in ("mape", "macro_mape", "median_ape",
                                                             "p90_ape", "max_ape"))
            yield f"| {STEP_GROUPS[g['name']]} |", f"| {s['n']} | {means} | {100 * s['bias']:+.1f} |"
    c = v["coverage"]
    yield (f"holds {100 * c['step_time']:.0f} % of the data-parallel step times at a median "
           f"half-width of {100 * c['median_half_width']:.1f} %.", "")


def readme_faults():
    """README's paragraph on trust repeats these figures."""
    text = " ".join(open(os.path.join(ROOT, "README.md")).read().split())
    s = program("validate")["step_time"]
    ape = [abs(blind()[r["id"], "step_time"]) for r in held_out()["rows"]
           if r["scored"] and r["metric"] == "step_time" and r["group"] == "data_parallel"]
    for said in (f"{s['n']} public data-parallel runs, mean error of the step {100 * s['mape']:.1f} %",
                 f"{len(ape)} runs that were collected afterwards were predicted blind within "
                 f"{100 * statistics.mean(ape):.1f} % in the mean",
                 f"half of them within {100 * statistics.median(ape):.1f} %"):
        if said not in text:
            yield f"README: does not say: {said}"


def renewed(line, start, rest):
    """The line with its last cells put right: those between `start` and `rest` stay."""
    between = line[len(start):].split("|")[: -1 - (rest.count("|") - 1)]
    return (start + "|".join(between)).removesuffix("|") + rest


def main():
    text = open(DOCUMENT).read()
    wrong = list(readme_faults())
    for rows in (step_scores, memory_rows, memory_scores, saved_tensor_rows, call_rows, copy_rows,
                 case_counts, oracle_rows, held_out_rows, held_out_scores):
        for start, rest in rows():
            match = [x for x in text.splitlines() if start in x]
            if not any(rest.strip("| ") in x for x in match):
                wrong.append(f"{rows.__name__}: {start} … {rest}")
                if rest and len(match) == 1:
                    text = text.replace(match[0], renewed(match[0], start, rest))
            twins = [x for x in match if x.startswith(start) and x.count("|") == (start + rest).count("|")]
            if len(set(twins)) > 1:  # a merge left an old one beside it
                wrong.append(f"{rows.__name__}: {len(twins)} rows of {start}")
    wrong += [f"an empty cell: {x}" for x in text.splitlines() if x.startswith("|") and "||" in x]
    section = text.split("\n## Peers\n", 1)[1].split("\n## ", 1)[0]
    seen = 0
    for line in section.splitlines():
        if line.startswith("| llama-"):
            case, ours = (x.strip() for x in line.split("|")[1:3])
            seen += 1
            today = peers_row(case)
            if today != ours:
                wrong.append(f"peers: {case}: {ours}, today {today}")
                text = text.replace(f"| {case} | {ours} |", f"| {case} | {today} |")
    if seen < 30:
        wrong.append(f"peers: only {seen} rows")
    if "--write" in sys.argv:
        open(DOCUMENT, "w").write(text)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
