#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report of every result that the program makes, and of the same files with every string and every
number replaced. Usage: test_commands.py SHARDREPORT SHARDPLAN [NAME...]"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import commands
from results import ALL, Page, check, finish, make, numbers_agree, page_is_sound, read_json, report

EVIL = (
    "</title><script>alert(1)</script>\"'`system(\"touch pwned\")`\n\\n$(id) {/Symbol a}^2_b %s%n\x01"
    "\u202eevil\u202c <img src=x onerror=alert(1)> שלום"
)
TAME = re.sub(r"[^\n]", "w", EVIL)
# Words that decide what is drawn: kept in one of the two passes.
DECIDING = set(
    "kind metric status verdict phase peak_phase stream severity collective direction group law name class "
    "provenance path link strategy fits_state choice backend from to".split()
)
NUMBERS = (None, 0, 1, -1, 1e308, 1e-308, "text", True, [], {})
MANY = 10000
# Lists that are drawn point by point. Of the others a thousand do: ten thousand plans are 150 MB.
POINTS = ("results", "tasks", "memory_over_time", "rows", "residuals", "checks", "transfers")


def walk(value, leaf, key=""):
    """A copy with leaf(key, value) in place of every value that holds no others."""
    if isinstance(value, dict):
        return {k: walk(v, leaf, k) for k, v in value.items()}
    if isinstance(value, list):
        return [walk(v, leaf, key) for v in value]
    return leaf(key, value)


def keys_of(value, wanted, key=""):
    """Keys under which a value that `wanted` accepts stands."""
    found = {key} if wanted(value) else set()
    inner = value.items() if isinstance(value, dict) else ()
    for k, v in inner:
        found |= keys_of(v, wanted, k)
    for v in value if isinstance(value, list) else ():
        found |= keys_of(v, wanted, key)
    return found


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Tester:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, name, document, *options):
        path = os.path.join(self.folder, "case.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(document, f)
        out = os.path.join(self.folder, "case")
        done = report(self.program, [path], out, *options)
        check(done.returncode == 0 and not done.stderr, "%s: %d %s" % (name, done.returncode, done.stderr))
        return out

    def page(self, name, document, *options):
        out = self.run(name, document, *options)
        return Page(out + "/index.html"), out

    def hostile(self, name, document):
        """Text of a file changes text alone: not one element, attribute or line of a script."""
        for words in (set(), DECIDING):
            def put(what):
                return walk(document, lambda k, v: what if isinstance(v, str) and k != "schema" and
                            k not in words else v)
            evil, tame = put(EVIL), put(TAME)
            evil[EVIL] = {EVIL: [{EVIL: EVIL}]}
            tame[TAME] = {TAME: [{TAME: TAME}]}
            page, out = self.page(name + " hostile", evil)
            page_is_sound(page, name + " hostile")
            check("not understood" not in page.text and "gnuplot failed" not in page.text,
                  name + ": a picture failed")
            self.scripts(name, out)
            bare = [self.page(name, d, "--gnuplot", "none")[0].order for d in (evil, tame)]
            check(bare[0] == bare[1], "%s: hostile text changes the page's elements: %s" % (
                name, [x for x in zip(*bare) if x[0] != x[1]][:1]))
        check(not os.path.exists("pwned") and not os.path.exists(os.path.join(out, "plots", "pwned")),
              name + ": a command was run")

    def scripts(self, name, out):
        plots = os.path.join(out, "plots")
        for script in os.listdir(plots):
            if not script.endswith((".gp", ".dat")):
                continue
            with open(os.path.join(plots, script), encoding="utf-8") as f:
                text = f.read()
            if script.endswith(".gp"):
                check(not re.search("alert|touch|evil", text), "%s: text of the file in %s" % (name, script))
            for line in text.splitlines() if script.endswith(".dat") else ():
                check(line.count('"') % 2 == 0, "%s: a quote is open in %s: %s" % (name, script, line))

    def odd_numbers(self, name, document):
        """Numbers become null, zero, one, huge, tiny, no number at all: all of them, then every key its own."""
        keys = sorted(keys_of(document, is_number))
        kinds = len(NUMBERS)
        for turn in range(2 * kinds):
            put = {k: NUMBERS[(turn + i * (turn >= kinds)) % kinds] for i, k in enumerate(keys)}
            case = "%s, numbers %d" % (name, turn)
            changed = walk(document, lambda k, v: put[k] if is_number(v) else v)
            out = self.run(case, changed, "--gnuplot", "none")
            self.finite(case, out)

    def finite(self, name, out):
        with open(out + "/index.html", encoding="utf-8") as f:
            text = re.sub(r"<[^>]*>", " ", f.read())
        bad = re.search(r"(?i)(?<![a-z-])-?(nan|inf)(?![a-z])", text)
        check(not bad, "%s: the page says %r" % (name, text[max(0, bad.start() - 40):bad.end()] if bad else 0))
        for script in os.listdir(os.path.join(out, "plots")):
            if script.endswith(".gp"):
                with open(os.path.join(out, "plots", script), encoding="utf-8") as f:
                    text = re.sub(r": NaN|NaN :|\(NaN\)|\"NaN\"", "", f.read())
                check(not re.search(r"(?i)\b(nan|inf)\b", text), "%s: %s holds a NaN" % (name, script))

    def counts(self, name, document):
        """Every list of objects in turn: of none, one and ten thousand."""
        def is_list(value):
            return isinstance(value, list) and value and isinstance(value[0], dict)

        def put(value, key, make_list):
            if is_list(value) and key[0] == key[1]:
                return make_list(value)
            if isinstance(value, dict):
                return {k: put(v, (k, key[1]), make_list) for k, v in value.items()}
            return [put(v, (None, key[1]), make_list) for v in value] if isinstance(value, list) else value
        for key in sorted(k for k, v in document.items() if is_list(v)):
            many = MANY if key in POINTS else MANY // 10
            for count, shape in ((0, lambda v: []), (1, lambda v: v[:1]),
                                 (many, lambda v: (v * (many // len(v) + 1))[:many])):
                case = "%s with %d %s" % (name, count, key)
                bare = () if count == 1 or key in POINTS else ("--gnuplot", "none")
                page, _ = self.page(case, put(document, ("", key), shape), *bare)
                page_is_sound(page, case)
                check("not understood" not in page.text and "gnuplot failed" not in page.text,
                      "%s with %d %s: a picture failed" % (name, count, key))


def own_page(shardplan, folder):
    """--report beside each kind of output; what goes to standard output stays as it was."""
    words = ["catalog", "show", "gpus", "a40"]
    plain = subprocess.run([shardplan, *words], capture_output=True, text=True).stdout
    page = os.path.join(folder, "own")
    done = subprocess.run([shardplan, *words, "--report", page], capture_output=True, text=True)
    check(done.returncode == 0 and done.stdout.startswith(plain), "catalog show --report: " + done.stderr)
    check("A40" in Page(page + "/index.html").text, "the entry is not on its page")
    words = ["emit", "accelerate", "llama-3-8b", "dgx-h100"]
    plain = subprocess.run([shardplan, *words], capture_output=True, text=True).stdout
    done = subprocess.run([shardplan, *words, "--report", page], capture_output=True, text=True)
    check(done.stdout == plain and plain, "emit --report adds to the configuration on standard output")
    check("fsdp_version" in Page(page + "/index.html").text, "the configuration is not on its page")
    done = subprocess.run([shardplan, *words, "--json", "-"], capture_output=True, text=True)
    check(json.loads(done.stdout)["text"] == plain, "emit --json - is not the JSON alone")


def main():
    program, shardplan = (os.path.abspath(p) for p in sys.argv[1:3])
    folder = tempfile.mkdtemp(prefix="report-commands-")
    if not shutil.which("gnuplot"):
        sys.exit(77)
    names = commands.make(folder + "/made", shardplan)
    make(folder + "/in")
    documents = {n: read_json("%s/made/%s.json" % (folder, n)) for n in names}
    for name in ALL:
        if not name.startswith("hostile") and name not in ("empty", "one", "many", "extreme"):
            documents["invented " + name] = read_json("%s/in/%s.json" % (folder, name))
    tester = Tester(program, folder)
    for name in sys.argv[3:] or documents:
        document = documents[name]
        page, _ = tester.page(name, copy.deepcopy(document))
        page_is_sound(page, name)
        check("gnuplot failed" not in page.text and "not understood" not in page.text, name + ": a picture failed")
        numbers_agree(page, [document], name.replace("invented ", ""))
        took = [time.time()]
        tester.hostile(name, document)
        took.append(time.time())
        tester.odd_numbers(name, document)
        took.append(time.time())
        tester.counts(name, document)
        took.append(time.time())
        if os.environ.get("REPORT_TIMES"):
            print(name, *["%.1f" % (b - a) for a, b in zip(took, took[1:])], "s")
    own_page(shardplan, folder)
    shutil.rmtree(folder)
    finish()


main()
