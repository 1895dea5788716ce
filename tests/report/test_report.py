#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shardreport without a browser: usage: test_report.py SHARDREPORT"""

import filecmp
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

from results import (
    ALL,
    Page,
    axes_are_sound,
    check,
    finish,
    make,
    numbers_agree,
    page_is_sound,
    read_json,
    report,
)


def without_gnuplot(program, files, folder):
    for option in ("none", os.path.join(folder, "no-such-program")):
        out = os.path.join(folder, "bare")
        done = report(program, [files["plan"]], out, "--gnuplot", option)
        check(done.returncode == 0, "without gnuplot: exit %d %s" % (done.returncode, done.stderr))
        page = Page(os.path.join(out, "index.html"))
        check("No picture: gnuplot" in page.text, "without gnuplot the page does not say so")
        check(
            os.path.exists(os.path.join(out, "plots", "memory.gp")),
            "without gnuplot no script is left",
        )
        check(not page.figures, "without gnuplot there is a picture")


def same_bytes(program, files, folder):
    outs = [os.path.join(folder, name) for name in ("first", "second")]
    for out in outs:
        report(program, [files["plan"], files["simulate"], files["measurement"]], out)
    names = sorted(os.listdir(os.path.join(outs[0], "plots")))
    check(len(names) > 20, "only %d files in plots/" % len(names))
    for name in ["index.html"] + [os.path.join("plots", n) for n in names]:
        check(
            filecmp.cmp(*[os.path.join(o, name) for o in outs], shallow=False),
            name + " differs between runs",
        )


def answers_name_their_subject(program, files, folder):
    other = read_json(files["plan"])
    other["model"]["name"] = "another-model"
    path = os.path.join(folder, "other.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(other, f)
    for second, named in ((path, 2), (files["plan"], 0)):
        out = os.path.join(folder, "subjects")
        report(program, [files["plan"], second], out, "--gnuplot", "none")
        with open(os.path.join(out, "index.html"), encoding="utf-8") as f:
            found = re.findall("<p class=from><a [^>]*>Plan</a>: <bdi>", f.read())
        check(len(found) == named, "%d answers of %d name their model" % (len(found), named))


def stale_plots(program, files, folder):
    out = os.path.join(folder, "reused")
    plots = os.path.join(out, "plots")
    report(program, [files["plan"]], out, "--gnuplot", "none")
    own = set(os.listdir(plots))
    foreign = ["memory.gp.orig", "notes.gp", "old-gantt.svg"]
    for name in foreign:
        with open(os.path.join(plots, name), "w", encoding="utf-8") as f:
            f.write("not the program's")
    with open(os.path.join(plots, ".shardreport"), "a", encoding="utf-8") as f:
        f.write("../../escape\n")
    with open(os.path.join(folder, "escape.gp"), "w", encoding="utf-8") as f:
        f.write("outside")
    report(program, [files["simulate"]], out, "--gnuplot", "none")
    now = set(os.listdir(plots))
    check("memory.gp" in own and "memory.gp" not in now, "the old run's plots stay")
    check(set(foreign) <= now, "a file that is not the program's was removed: %s" % sorted(now))
    check(os.path.exists(os.path.join(folder, "escape.gp")), "a name in the list left the folder")


def hostile(page, source, folder, name):
    evil = source["command"] if "command" in source else source["results"][0]["kind"]
    cleaned = " ".join(re.sub("[\u202a-\u202e]", "", evil).split())
    check(cleaned in page.text, name + ": the hostile text is not shown as text")
    for script in os.listdir(os.path.join(folder, "plots")):
        if script.endswith(".gp"):
            with open(os.path.join(folder, "plots", script), encoding="utf-8") as f:
                text = f.read()
            check(
                not any(word in text for word in ("alert", "system", "touch", "evil")),
                name + ": text of the file reached " + script,
            )
    for where in (folder, os.path.join(folder, "plots"), "."):
        check(not os.path.exists(os.path.join(where, "pwned")), name + ": a command was run")


# What a file holds, and what the refusal must say besides the file's name.
UNREADABLE = (
    ("", ["the file is empty", "plan, simulate"]),
    ("{", ["bad.json:1"]),
    ('{"schema": "shardplan.plan/1", "plans": [}', ["bad.json:1"]),
    ('{"schema": "shardplan.plan/1", "plans": [', ["bad.json:1"]),
    ("[1, 2]", ["not a JSON object", "shardplan.NAME/1", "plan, simulate"]),
    ('"plan"', ["not a JSON object"]),
    ("{}", ['no "schema"', "plan, simulate"]),
    ('{"schema": 1}', ['no "schema"']),
    ('{"schema": "shardplan.plan"}', ["shardplan.plan", "reads shardplan.plan/1"]),
    ('{"schema": "shardplan.plan/2"}', ["shardplan.plan/2", "reads shardplan.plan/1"]),
    ('{"schema": "shardplan.planet/1"}', ["shardplan.planet/1", "plan, simulate"]),
    ('{"schema": "shardplan.graph/1"}', ["shardplan.graph/1", "simulate --json"]),
    ('{"schema": "nccl-tests/1"}', ["nccl-tests/1", "plan, simulate"]),
    ('{"architectures": ["LlamaForCausalLM"]}', ['no "schema"']),
    ('{"schema": "shardplan.plan/1"}\n{"kind": "copy"}\n', ["lines are for measurements"]),
    ('{"schema": "shardplan.measurement/1"}\n{"kind"\n{}\n', ["line 2"]),
    ("step 1 loss 2.0\n", ["bad.json:1"]),
)


def unreadable(program, folder):
    bad = os.path.join(folder, "bad.json")
    for text, words in UNREADABLE:
        with open(bad, "w", encoding="utf-8") as f:
            f.write(text)
        done = report(program, [bad], folder + "/unreadable")
        check(done.returncode == 3, "%r: exit %d, not 3" % (text, done.returncode))
        for word in [bad] + words:
            check(word in done.stderr, "%r: %r is not in %s" % (text, word, done.stderr))
    check(not os.path.exists(folder + "/unreadable"), "a refused file leaves a folder")


def cut_off(program, folder):
    """The last line of a measurement that a crash cut off is left out, and the page says so."""
    path = os.path.join(folder, "cut.jsonl")
    row = '{"kind": "copy", "backend": "host", "payload_bytes": 1024, "median_s": 1}\n'
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"schema": "shardplan.measurement/1"}\n' + row + row[:20])
    done = report(program, [path], folder + "/cut")
    text = Page(folder + "/cut/index.html").text
    check(done.returncode == 0 and "1 measurement" in text, "cut off: %s" % done.stderr)
    check("last line was cut off" in text, "the page does not say that a line was cut off")


def refusals(program, files, folder):
    cases = (
        (3, [folder + "/absent.json", "-o", folder + "/x"]),
        (3, [folder, "-o", folder + "/x"]),
        (2, [files["plan"]]),
        (2, ["-o", folder + "/x"]),
        (2, [files["plan"], "--colour"]),
        (4, [files["plan"], "-o", files["plan"] + "/x"]),
    )
    for status, arguments in cases:
        done = subprocess.run([program] + arguments, capture_output=True, text=True)
        check(
            done.returncode == status and done.stderr.startswith("shardreport: "),
            "%s: exit %d, not %d: %s" % (arguments, done.returncode, status, done.stderr),
        )


def processor_s():
    """Of all children so far: unlike the clock it does not measure what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    program, folder = os.path.abspath(sys.argv[1]), tempfile.mkdtemp(prefix="report-test-")
    if not shutil.which("gnuplot"):
        sys.exit(77)
    make(folder + "/in")
    files = {name: "%s/in/%s.json" % (folder, name) for name in ALL}
    for name in ALL:
        out, began = "%s/%s" % (folder, name), processor_s()
        done = report(program, [files[name]], out)
        took = processor_s() - began
        check(
            done.returncode == 0 and not done.stderr,
            "%s: exit %d %s" % (name, done.returncode, done.stderr),
        )
        page, source = Page(out + "/index.html"), read_json(files[name])
        page_is_sound(page, name)
        axes_are_sound(out, name)
        check(
            "gnuplot failed" not in page.text and "not understood" not in page.text,
            name + ": a picture failed",
        )
        if name.startswith("hostile"):
            hostile(page, source, out, name)
        else:
            if name not in ("empty", "extreme"):
                numbers_agree(page, [source], name)
        if name == "advise":
            said = [f.get("aria-label", "") for f in page.figures]
            scales = "128 GPUs reach 91 % of the tokens per second and GPU of 16 GPUs"
            check(any(scales in a for a in said), "no picture of how the plan scales: %s" % said)
        if name == "sweep":
            check(took < 3, "the page of a 200-plan sweep took %.2f s of processor time" % took)
    lines = report(program, [folder + "/in/measurement.jsonl"], folder + "/lines")
    check(
        lines.returncode == 0 and "12 measurements" in Page(folder + "/lines/index.html").text,
        "JSON lines are not read: " + lines.stderr,
    )
    without_gnuplot(program, files, folder)
    answers_name_their_subject(program, files, folder)
    stale_plots(program, files, folder)
    same_bytes(program, files, folder)
    refusals(program, files, folder)
    unreadable(program, folder)
    cut_off(program, folder)
    shutil.rmtree(folder)
    finish()


main()
