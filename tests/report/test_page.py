#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page in a headless Chromium: results invented by make_results.py, and made by the programs.

Usage: test_page.py SHARDREPORT SHARDPLAN SHARDBENCH [SHARDBENCH-FAKEGPU] [--only NAME...]
77 without a browser.
"""

import os
import shutil
import sys
import tempfile

import browser
import commands
from results import ALL, check, finish, make, numbers_agree, read_json, report

# Elements whose text has less than 4.5 : 1 against what is behind it. In pictures, text of the two
# fixed inks lies on bars and is checked against their colours by test_report.c.
CONTRAST = r"""
(() => {
  const parse = c => (c.match(/[\d.]+/g) || []).map(Number);
  const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const lum = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (!e.getClientRects().length) continue;
    const style = getComputedStyle(e), svg = e instanceof SVGElement;
    const c = parse(svg ? style.fill : style.color);
    if (svg && (c.join() === '0,0,1' || c.join() === '255,255,254')) continue;
    const a = lum(c), b = lum(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(e.tagName + ' ' + e.textContent.trim().slice(0, 30) + ' ' + ratio);
  }
  return bad;
})()"""

NUMBERS = """[...document.querySelectorAll('data[data-path]')].map(
  e => [Number(e.dataset.file), e.dataset.path, e.value, e.textContent])"""

# Texts of a picture that lie on one another or leave it.
OVERLAPS = r"""
(() => {
  const bad = [];
  for (const svg of document.querySelectorAll('svg.plot')) {
    if (!svg.getClientRects().length) continue;
    const f = svg.getBoundingClientRect(), name = svg.closest('figure').id;
    const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim() &&
      !/rotate\(-?45/.test(t.parentElement.getAttribute('transform')));  // boxes of those meet
    const boxes = texts.map(t => [t.textContent.trim(), t.getBoundingClientRect()]);
    boxes.forEach(([text, r], i) => {
      if (r.left < f.left - 1 || r.right > f.right + 1 || r.top < f.top - 1 ||
          r.bottom > f.bottom + 1)
        bad.push(name + ': clipped: ' + text);
      for (const [other, o] of boxes.slice(0, i)) {
        const w = Math.min(r.right, o.right) - Math.max(r.left, o.left);
        const h = Math.min(r.bottom, o.bottom) - Math.max(r.top, o.top);
        if (w > 2 && h > 0.45 * Math.min(r.height, o.height))
          bad.push(name + ': overlap: ' + text + ' | ' + other);
      }
    });
  }
  return bad;
})()"""

UNDESCRIBED = """
[...document.querySelectorAll('figure')].filter(
  f => ![...f.querySelectorAll('svg[aria-label]')].some(s => s.getClientRects().length) &&
       !f.querySelector('.missing')).map(f => f.id)"""


class Numbers:
    def __init__(self, rows):
        self.numbers = [tuple(r) for r in rows]


def look(page, path, name, width, dark):
    where = "%s at %d px, %s" % (name, width, "dark" if dark else "light")
    page.open(path, width, dark)
    check(not page.complaints(), where + ": console: %s" % page.complaints()[:2])
    check(not page.requests(path), where + ": requests: %s" % page.requests(path)[:2])
    wide = page.value("document.documentElement.scrollWidth")
    check(wide <= width, where + ": scrolls sideways, %d px" % wide)
    low = page.value(CONTRAST)
    check(not low, where + ": contrast below 4.5: %s" % low[:3])
    check(not page.value(UNDESCRIBED), where + ": figures without a described picture")
    if not dark:
        bad = page.value(OVERLAPS)
        check(not bad, where + ": %d: %s" % (len(bad), bad[:4]))


def on_paper(page, path, name):
    """A4 in portrait: nothing is wider than the sheet, and its words are dark on white."""
    page.open(path, 718, False)  # the sheet within its margins
    page.call("Emulation.setEmulatedMedia", media="print")
    wide = page.value("document.documentElement.scrollWidth")
    check(wide <= 718, "%s on paper: %d px wide" % (name, wide))
    ink = page.value("getComputedStyle(document.body).color")
    check(ink == "rgb(0, 0, 0)", "%s on paper: words are %s" % (name, ink))
    page.call("Emulation.setEmulatedMedia", media="")


def documents(folder, programs):
    """(name, path, numbers agree) of invented results, and of those that the programs make."""
    make(folder + "/in")
    for name in ALL:
        exact = not name.startswith("hostile") and name not in ("empty", "extreme")
        yield name, "%s/in/%s.json" % (folder, name), exact
    for name in commands.make(folder + "/made", *programs):
        yield "made-" + name, "%s/made/%s.json" % (folder, name), True


def main():
    arguments, wanted = sys.argv[1:], []
    if "--only" in arguments:
        at = arguments.index("--only")
        arguments, wanted = arguments[:at], arguments[at + 1 :]
    program, folder = os.path.abspath(arguments[0]), tempfile.mkdtemp(prefix="report-page-")
    found = browser.find()
    if not found or not shutil.which("gnuplot"):
        sys.exit(77)
    page = browser.Browser(found)
    try:
        for name, source, exact in documents(folder, arguments[1:]):
            out = "%s/%s" % (folder, name)
            if wanted and name not in wanted:
                continue
            done = report(program, [source], out)
            check(done.returncode == 0, "%s: exit %d %s" % (name, done.returncode, done.stderr))
            path = out + "/index.html"
            for width in (390, 1280, 1920):
                for dark in (False, True):
                    look(page, path, name, width, dark)
            if exact:
                numbers_agree(Numbers(page.value(NUMBERS)), [read_json(source)], name)
            on_paper(page, path, name)
    finally:
        page.close()
    shutil.rmtree(folder)
    finish()


main()
