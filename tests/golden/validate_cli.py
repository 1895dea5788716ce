#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The validate command as a user sees it: result, rows, exit statuses, messages."""
import json
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
FIXTURES = os.path.join(os.environ["SHARDPLAN_SOURCE_ROOT"], "tests", "fixtures", "validation")
RUNS = os.path.join(FIXTURES, "runs.json")
BANDWIDTHS = os.path.join(FIXTURES, "collectives.json")
SCORE = {"n", "mape", "macro_mape", "median_ape", "p90_ape", "max_ape", "bias"}


def run(*words):
    return subprocess.run([PROGRAM, "validate", *words], capture_output=True, text=True,
                          timeout=60)


def result(*words):
    done = run(*words, "--json", "-", "--quiet")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Runs(unittest.TestCase):
    def test_schema_and_sums(self):
        r = result(RUNS)
        self.assertEqual(r["schema"], "shardplan.validate/1")
        for key in ("step_time", "memory"):
            self.assertEqual(set(r[key]), SCORE)
        self.assertEqual(set(r["collectives"]), SCORE | {"unscored"})
        rows = [x for x in r["rows"] if x["scored"] and x["metric"] == "step_time"]
        parallel = [x["ape"] for x in rows if x["group"] == "data_parallel"]
        self.assertEqual(len(parallel), r["step_time"]["n"])
        self.assertAlmostEqual(sum(parallel) / len(parallel), r["step_time"]["mape"], 6)
        self.assertAlmostEqual(max(parallel), r["step_time"]["max_ape"], 6)
        for x in rows:
            self.assertAlmostEqual(abs(x["predicted"] / x["measured"] - 1), x["ape"], 6)
            self.assertLessEqual(x["low"], x["predicted"])
            self.assertLessEqual(x["predicted"], x["high"])
        for x in r["rows"]:
            self.assertEqual(x["scored"], x["reason"] is None, x["id"])
        groups = {g["name"]: g for g in r["by_group"] if g["by"] == "group"}
        self.assertEqual(groups["float8"]["claim"], groups["float8"]["score"]["n"] >= 5)

    def test_same_input_same_bytes(self):
        one, two = run(RUNS, "--json", "-", "--quiet"), run(RUNS, "--json", "-", "--quiet")
        self.assertEqual(one.stdout, two.stdout)

    def test_limit_decides_the_exit(self):
        self.assertEqual(run(RUNS, "--max-mape", "0.5").returncode, 0)
        self.assertEqual(run(RUNS, "--max-mape", "0.0001").returncode, 1)

    def test_rows_are_listed_with_reasons(self):
        text = run(RUNS, "--rows").stdout
        self.assertIn("foundry-h100-7b-s2048-n128-mb6x1", text)
        self.assertIn("tier supplement", text)
        self.assertNotIn("foundry-h100-7b-s2048-n128-mb6x1", run(RUNS).stdout)

    def test_nothing_to_score(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write("[]")
            f.flush()
            self.assertEqual(run(f.name).returncode, 4)


class Collectives(unittest.TestCase):
    def test_scores(self):
        r = result("--collectives", BANDWIDTHS)
        scored = [x for x in r["rows"] if x["scored"]]
        self.assertEqual(r["collectives"]["n"], len(scored))
        self.assertEqual(r["collectives"]["unscored"], len(r["rows"]) - len(scored))
        self.assertLess(r["collectives"]["median_ape"], 0.12)
        self.assertIsNone(r["step_time"]["mape"])


class Refusals(unittest.TestCase):
    def test_bad_input(self):
        self.assertEqual(run("/no/such/runs.json").returncode, 3)
        done = run(BANDWIDTHS)
        self.assertEqual(done.returncode, 3)
        self.assertIn("array of runs", done.stderr)
        self.assertEqual(run("--collectives", RUNS).returncode, 4)

    def test_alone_it_scores_the_runs_that_come_along(self):
        own = run("--json", "-")
        given = run(os.path.join(os.environ["SHARDPLAN_CATALOG"], "measured", "runs.json"), "--json", "-")
        self.assertEqual(own.returncode, 0)
        alone, named = json.loads(own.stdout), json.loads(given.stdout)
        self.assertEqual({**alone, "command": "", "input": ""}, {**named, "command": "", "input": ""})
        self.assertGreater(alone["step_time"]["n"], 100)

    def test_usage(self):
        self.assertEqual(run(RUNS, RUNS).returncode, 2)
        self.assertEqual(run(RUNS, "--colectives", BANDWIDTHS).returncode, 2)
        self.assertEqual(run("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
