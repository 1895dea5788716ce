#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Read Meson's testlog.json: name every test, with the reason of a skip and the end of a failure's
output; the last line is "passed failed skipped"."""
import json
import sys

GOOD = {"OK", "EXPECTEDFAIL"}


def tail(test, lines):
    text = (test.get("stdout") or "") + (test.get("stderr") or "")
    return [line for line in text.splitlines() if line.strip()][-lines:]


def main(path):
    passed = failed = skipped = 0
    with open(path, encoding="utf-8") as log:
        tests = [json.loads(line) for line in log if line.strip()]
    for test in tests:
        name, result = test["name"], test["result"]
        if result in GOOD:
            passed += 1
            print(f"PASS  {name}  {test['duration']:.1f} s")
        elif result == "SKIP":
            skipped += 1
            reason = tail(test, 1)
            print(f"SKIP  {name}: {reason[0].strip() if reason else 'it gave no reason'}")
        else:
            failed += 1
            print(f"FAIL  {name}: {result.lower()}")
            for line in tail(test, 30):
                print(f"      {line}")
    print(passed, failed, skipped)


main(sys.argv[1])
