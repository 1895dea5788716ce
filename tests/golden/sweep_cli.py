#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sweep command as a user sees it: its counts, threads without effect, CSV, Ctrl-C."""
import csv
import json
import os
import signal
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
SMALL = ("llama-3.2-1b", "dgx-a100", "--strategy", "zero2,zero3,fsdp2", "--range", "micro-batch=1,2,4,8",
         "--range", "loss=torch,chunked")


def sweep(*words):
    done = subprocess.run([PROGRAM, "sweep", *words, "--json", "-", "--quiet"], capture_output=True, text=True,
                          timeout=300)
    return json.loads(done.stdout), done


class Sweep(unittest.TestCase):
    def test_default_space(self):
        result, done = sweep("llama-2-7b", "dgx-h100")
        counts = result["evaluated"]
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(result["points"], 200000)
        self.assertEqual(counts["bounded"], counts["pruned"] + counts["simulated"])
        self.assertLessEqual(counts["bounded"] + counts["duplicates"], result["points"])
        self.assertLess(counts["simulated"], 1000)  # the bound is tight enough for seconds
        rates = [p["tokens_per_s"] for p in result["plans"]]
        self.assertEqual(rates, sorted(rates, reverse=True))

    def test_each_strategy_has_its_best(self):
        both = ("--range", "loss=torch", "--range", "precision=bf16-mixed")
        result, _ = sweep("llama-2-7b", "dgx-h100", "--strategy", "ddp,zero1,zero3,fsdp2", "--top", "3", *both)
        best = {p["strategy"]: p for p in result["by_strategy"]}
        rates = [p["tokens_per_s"] for p in result["by_strategy"]]
        self.assertEqual(set(best), {"zero1", "zero3", "fsdp2"})  # with ddp nothing fits
        self.assertEqual(rates, sorted(rates, reverse=True))
        for name, plan in best.items():
            alone, _ = sweep("llama-2-7b", "dgx-h100", "--strategy", name, *both)
            same = {k: v for k, v in alone["plans"][0].items() if k not in ("point", "nearest_measured")}
            self.assertEqual({k: v for k, v in plan.items() if k != "nearest_measured"}, same, name)

    def test_a_sure_fit_comes_first(self):
        """GPT-2 XL on 32 GiB cards: the fastest plan may fit, the best listed surely does."""
        result, _ = sweep("gpt2-xl", "8xV100-32GB", "--strategy", "ddp", "--precision", "fp16-mixed")
        self.assertEqual({p["memory"]["fits_state"] for p in result["plans"]}, {"yes"})

    def test_other_numerics_are_said(self):
        words = [PROGRAM, "sweep", "llama-3.2-1b", "dgx-a100", "--strategy", "zero++", "--range", "micro-batch=1"]
        for precision, said in (("bf16-pure", True), ("bf16-mixed", False)):
            out = subprocess.run([*words, "--range", f"precision={precision}"], capture_output=True, text=True).stdout
            self.assertEqual("It trains in bf16-pure, not in bf16-mixed" in out, said)
            self.assertIn("It sends quantised weights", out)

    def test_threads_change_no_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            outputs = []
            for threads in ("1", "2", "5"):
                path = os.path.join(folder, threads)
                result, done = sweep(*SMALL, "--pareto", "--threads", threads, "--csv", path)
                self.assertEqual(done.returncode, 0, done.stderr)
                del result["elapsed_s"], result["command"]
                with open(path, "rb") as f:
                    outputs.append((json.dumps(result), f.read()))
            self.assertEqual(outputs[0], outputs[1])
            self.assertEqual(outputs[0], outputs[2])
            rows = list(csv.DictReader(outputs[0][1].decode().splitlines()))
            self.assertEqual({r["list"] for r in rows}, {"best", "pareto"})

    def test_space_reads_back(self):
        first, _ = sweep(*SMALL)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "space.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(first["space"], f)
            again, done = sweep("llama-3.2-1b", "dgx-a100", "--strategy", "zero2,zero3,fsdp2", "--space", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(first["space"], again["space"])
        self.assertEqual(first["plans"], again["plans"])

    def test_interrupted_keeps_what_is_done(self):
        words = ["sweep", "llama-2-7b", "dgx-h100", "--exhaustive", "--json", "-", "--quiet"]
        child = subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, text=True)
        try:
            child.communicate(timeout=3)  # an exhaustive search of this space takes minutes
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=120)
        result = json.loads(out)
        self.assertEqual(child.returncode, 130)
        self.assertTrue(result["interrupted"])
        self.assertGreater(result["simulated"], 0)
        self.assertGreater(len(result["plans"]), 0)

    def test_splits_of_the_model(self):
        words = ("llama-3-8b", "dgx-h100", "--strategy", "zero1,fsdp2", "--range", "micro-batch=1", "--range",
                 "offload=none", "--range", "recompute=full", "--range", "loss=torch", "--range",
                 "precision=bf16-mixed", "--top", "100")
        listed, done = sweep(*words, "--tp", "1,2,4", "--pp=1,2")
        self.assertEqual(done.returncode, 0, done.stderr)
        spelled, _ = sweep(*words, "--range", "tp=1,2,4", "--range", "pp=1,2")
        self.assertEqual(listed["plans"], spelled["plans"])
        self.assertEqual((listed["space"]["tp"], listed["space"]["pp"]), ([1, 2, 4], [1, 2]))
        seen = {(p["recipe"]["tp"], p["recipe"]["pp"]) for p in listed["plans"]}
        self.assertEqual(seen, {(t, p) for t in (1, 2, 4) for p in (1, 2)})
        for tp, pp in sorted(seen):  # each is the plan that plan makes of the same words
            one, _ = sweep(*words, "--tp", str(tp), "--pp", str(pp))
            here = [p["time"]["step_s"] for p in listed["plans"] if (p["recipe"]["tp"], p["recipe"]["pp"]) == (tp, pp)]
            self.assertEqual(sorted(here), sorted(p["time"]["step_s"] for p in one["plans"]))
            for p in one["plans"]:
                if pp > 1:
                    self.assertEqual(p["proven"]["time"], "unproven")

    def test_the_first_row_reads_back_as_options(self):
        words = ["llama-3-8b", "8xA100-80GB", "--strategy", "zero3", "--range", "recompute=none", "--range",
                 "micro-batch=1,2", "--range", "precision=bf16-pure", "--global-batch", "64"]
        result, _ = sweep(*words)
        done = subprocess.run([PROGRAM, "sweep", *words], capture_output=True, text=True, timeout=60)
        line = next(x for x in done.stdout.splitlines() if x.startswith("The first as options: "))
        again = subprocess.run([PROGRAM, "plan", *words[:2], *line.split(": ")[1].split(), "--json", "-"],
                               capture_output=True, text=True, timeout=60)
        plan, first = json.loads(again.stdout)["plans"][0], result["plans"][0]
        self.assertEqual(plan["time"]["step_s"], first["time"]["step_s"])
        self.assertEqual(plan["memory"]["allocated_peak_bytes"], first["memory"]["allocated_peak_bytes"])

    def test_splits_that_none_can_run_say_why(self):
        done = subprocess.run([PROGRAM, "sweep", "llama-3-8b", "dgx-h100", "--strategy", "zero2", "--pp", "2,4"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 3)
        self.assertIn("takes ZeRO stage 1 at most", done.stderr)

    def test_what_no_range_is(self):
        done = subprocess.run([PROGRAM, "sweep", "gpt2", "dgx-a100", "--range", "micro-bach=1"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("micro-batch", done.stderr)


if __name__ == "__main__":
    unittest.main()
