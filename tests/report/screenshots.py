#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two pictures of README from real outputs. Usage: screenshots.py SHARDPLAN SHARDREPORT DIR"""

import os
import subprocess
import sys
import tempfile

import browser
from results import report

PICTURES = {
    "report-plan": ["plan", "llama-3-8b", "dgx-h100", "--nodes", "4"],
    "report-step": ["simulate", "llama-3-8b", "dgx-h100", "--nodes", "4", "--strategy", "fsdp2"],
}
FOOT = "document.querySelector('figure').getBoundingClientRect().bottom + scrollY + 12"


def main():
    shardplan, shardreport, images = sys.argv[1:4]
    page = browser.Browser(browser.find())
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in PICTURES.items():
            result = os.path.join(folder, name + ".json")
            command = [shardplan] + arguments + ["--json", result]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            report(shardreport, [result], folder + "/" + name)
            page.open(os.path.join(folder, name, "index.html"), 1000, False)
            page.screenshot(os.path.join(images, name + ".png"), height=page.value(FOOT))
    page.close()


main()
