# SPDX-License-Identifier: Apache-2.0
"""What the report's tests share: making result files, running the program, reading pages."""

import glob
import html.parser
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MAKER = os.path.join(HERE, "..", "fixtures", "report", "make_results.py")
ALL = (
    "plan",
    "plan_none",
    "simulate",
    "sweep",
    "advise",
    "measurement",
    "confirm",
    "validate",
    "accept",
    "rehearse",
    "fit",
    "check",
    "explain",
    "hostile",
    "hostile_step",
    "hostile_pairs",
    "empty",
    "one",
    "many",
    "extreme",
)

TAGS = set(
    "html head meta link title style body a header p h1 h2 h3 h4 dl dt dd small nav ul li main section div "
    "span b bdi br table caption thead tbody tr th td data "
    "details summary figure figcaption pre code "
    "footer sup svg g path text polygon polyline rect circle use defs".split()
)

failures = []


def check(good, text):
    if not good:
        failures.append(text)
        print("FAIL", text)


def finish():
    print("%d failures" % len(failures))
    sys.exit(1 if failures else 0)


def make(folder):
    os.makedirs(folder, exist_ok=True)
    subprocess.run([sys.executable, MAKER, folder], check=True)


def report(program, files, folder, *options):
    return subprocess.run(
        [program, *files, "-o", folder, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )


class Page(html.parser.HTMLParser):
    """Tags, attributes, text, and every <data> with its text."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.numbers, self.words = set(), [], [], []
        self.order = []  # of elements and their attributes' names, without what gnuplot drew
        self.open_data, self.depth_style, self.figures = None, 0, []
        with open(path, encoding="utf-8") as f:
            self.source = f.read()
        self.feed(self.source)
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.order.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value) for name, value in attrs]
        found = dict(attrs)
        if tag == "data":
            self.open_data = [int(found["data-file"]), found["data-path"], found["value"], ""]
        if tag == "svg" and "plot" in found.get("class", ""):
            self.figures.append(found)
        if tag == "style":
            self.depth_style += 1

    def handle_endtag(self, tag):
        if tag == "data" and self.open_data:
            self.numbers.append(tuple(self.open_data))
            self.open_data = None
        if tag == "style":
            self.depth_style -= 1

    def handle_data(self, data):
        if self.open_data:
            self.open_data[3] += data
        if not self.depth_style:
            self.words.append(data)


def at_path(root, path):
    """The value at "$.plans[0].memory"; KeyError when it is not there."""
    for key, index, odd in re.findall(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]|\['(.*?)'\]", path[1:]):
        root = root[int(index)] if index else root[key or odd]
    return root


UNITS = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
    "B/s": 1,
    "kB/s": 1e3,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "TB/s": 1e12,
    "s": 1,
    "ms": 1e-3,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "ns": 1e-9,
    "min": 60,
    "h": 3600,
    "d": 86400,
    "%": 0.01,
    "TFLOP/s": 1e12,
    "TFLOP": 1e12,
    "k": 1e3,
    "M": 1e6,
    "T": 1e12,
}


def shown_value(text, path):
    """The number that a formatted text stands for."""
    if text.strip() == "no limit" and path.endswith("_elements"):
        return 2.0**63
    match = re.fullmatch(r"(\u2212?)([0-9.,e+-]+)(?: (\S+))?", text.strip())
    if not match:
        raise ValueError(text)
    value = float(match[2].replace(",", "")) * (-1 if match[1] else 1)
    unit = match[3] or ""
    return value * (UNITS[unit] if unit else 1)


def numbers_agree(page, roots, name):
    check(page.numbers or name == "check", name + ": the page shows no number")
    for file, path, value, text in page.numbers:
        stated = at_path(roots[file], path)
        check(
            float(value) == float(stated),
            "%s %s: page holds %s, file holds %r" % (name, path, value, stated),
        )
        shown = shown_value(text, path)
        check(
            abs(shown - stated) <= 0.006 * abs(stated) + 1e-12,
            "%s %s: page shows %s for %r" % (name, path, text, stated),
        )


def blocks_of(path):
    """The blocks of a gnuplot data file, each a list of rows of fields."""
    with open(path, encoding="utf-8") as f:
        return [
            [line.rstrip("\t").split("\t") for line in block.split("\n") if line]
            for block in f.read().strip("\n").split("\n\n\n")
        ]


def axes_are_sound(folder, name):
    """Ticks: two to twelve, all different, inside the range. Rows: no two with the same label."""
    for script in sorted(glob.glob(os.path.join(folder, "plots", "*.gp"))):
        where = name + " " + os.path.basename(script)
        with open(script, encoding="utf-8") as f:
            text = f.read()
        ranges = {}
        for line in text.split("\n"):
            found = re.match(r"set ([xy])range \[(\S+):(\S+)\]", line)
            if found:
                ranges[found[1]] = (float(found[2]), float(found[3]))
            found = re.match(r"set ([xy])tics \((.*)\)", line)
            if not found:
                continue
            ticks = re.findall(r'"([^"]*)" (\S+?)(?:,|$)', found[2])
            words, values = [t[0] for t in ticks], [float(t[1]) for t in ticks]
            check(2 <= len(ticks) <= 12, "%s: %d ticks: %s" % (where, len(ticks), words))
            check(len(set(words)) == len(words), "%s: equal ticks: %s" % (where, words))
            low, high = ranges[found[1]]
            slack = 1e-6 * max(abs(low), abs(high))
            check(
                all(low - slack <= v <= high + slack for v in values),
                "%s: ticks %s outside %g to %g" % (where, words, low, high),
            )
        for index in set(re.findall(r"file index (\d+) using [^\n]*ytic\(row_label\)", text)):
            rows = blocks_of(script[:-3] + ".dat")[int(index)]
            for column in {int(c) for c in re.findall(r"row_(?:label|text) = (\d+)", text)}:
                labels = [r[column - 1] for r in rows if r[column - 1] != '" "']
                check(
                    len(set(labels)) == len(labels),
                    "%s: rows with one label: %s" % (where, sorted(labels)),
                )


def page_is_sound(page, name):
    odd = page.tags - TAGS
    check(not odd, "%s: unexpected elements %s" % (name, sorted(odd)))
    handlers = [a for a in page.attributes if a[1].startswith("on")]
    check(not handlers, "%s: event handlers %s" % (name, handlers[:2]))
    outside = [
        a
        for a in page.attributes
        if a[1] in ("src", "href", "xlink:href", "action")
        and not (a[2] or "").startswith(("#", "data:"))
    ]
    check(not outside, "%s: references outside %s" % (name, outside[:2]))
    check(len(page.source.encode()) < 2 * 1000 * 1000, name + ": over 2 MB")
    for figure in page.figures:
        check(
            len(figure.get("aria-label", "")) > 20 and figure.get("role") == "img",
            name + ": a picture without a sentence that says what it shows",
        )


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)
