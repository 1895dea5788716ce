#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plan command as a user sees it: the seed's rule, sums, exit statuses, messages, streams."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]


def run(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60)


def plan(*words):
    done = run("plan", *words, "--json", "-", "--quiet")
    return json.loads(done.stdout), done


def by_strategy(result):
    return {p["title"]: p for p in result["plans"]}


class SeedRule(unittest.TestCase):
    """2x against 3x, and beside it what the code sends (docs/method.md §volume)."""

    @classmethod
    def setUpClass(cls):
        cls.result, cls.done = plan("llama-2-7b", "dgx-a100")
        cls.plans = by_strategy(cls.result)
        cls.psi = cls.result["model"]["parameters"]
        cls.q = 7 / 8

    def test_textbook(self):
        for name, multiple in {"ddp": 2, "zero1": 2, "zero2": 2, "zero3": 3, "fsdp1": 3, "fsdp2": 3}.items():
            volume = self.plans[name]["volume"]
            self.assertEqual(volume["textbook_multiple"], multiple, name)
            self.assertAlmostEqual(volume["textbook_bytes"] / (multiple * 2 * self.psi), 1, 6)

    def test_zero2_all_reduces(self):
        volume = self.plans["zero2"]["volume"]
        self.assertEqual(volume["reduce_scatter_bytes"], 0)
        self.assertAlmostEqual(volume["all_reduce_bytes"] / (4 * self.psi * self.q), 1, 3)
        self.assertAlmostEqual(volume["sent_bytes_per_gpu"] / (6 * self.psi * self.q), 1, 3)

    def test_zero3_keeps_a_tail(self):
        ratio = self.plans["zero3"]["volume"]["sent_bytes_per_gpu"] / (4 * self.psi * self.q)
        self.assertAlmostEqual(ratio, 1.43, delta=0.015)

    def test_fsdp_reduces_in_fp32(self):
        volume = self.plans["fsdp2"]["volume"]
        self.assertAlmostEqual(volume["reduce_scatter_bytes"] / (4 * self.psi * self.q), 1, 2)
        bf16, _ = plan("llama-2-7b", "dgx-a100", "--strategy", "fsdp2", "--reduce-dtype", "bf16")
        sent = bf16["plans"][0]["volume"]["reduce_scatter_bytes"]
        self.assertAlmostEqual(sent / (2 * self.psi * self.q), 1, 2)

    def test_accumulation(self):
        four, _ = plan("llama-2-7b", "dgx-a100", "--strategy", "ddp,zero2", "--grad-accum", "4")
        plans = by_strategy(four)
        self.assertAlmostEqual(plans["ddp"]["volume"]["sent_bytes_per_gpu"],
                               self.plans["ddp"]["volume"]["sent_bytes_per_gpu"], delta=1e6)
        self.assertAlmostEqual(plans["zero2"]["volume"]["sent_bytes_per_gpu"] / (18 * self.psi * self.q), 1, 3)


class Sums(unittest.TestCase):
    CASES = [("llama-3-8b", "dgx-h100"), ("mixtral-8x7b", "dgx-h100", "--nodes", "4"),
             ("gpt2", "8xV100-32GB", "--precision", "fp16-mixed"),
             ("llama-3-70b", "dgx-a100", "--with-offload", "--grad-accum", "4"),
             ("qwen2.5-7b", "p4d.24xlarge", "--nodes", "2", "--lora-rank", "16")]
    CLASSES = ["params", "grads", "optimizer", "master", "gather", "bucket", "activations", "logits", "step_transient"]
    RUNNING = {"forward", "loss", "backward", "step_first", "step"}

    def plans(self):
        for case in self.CASES:
            for p in plan(*case)[0]["plans"]:
                if not p["reason"]:
                    yield case, p

    def test_phases_sum_to_allocated(self):
        for case, p in self.plans():
            m = p["memory"]
            for phase in m["phases"]:
                total = sum(phase[c + "_bytes"] for c in self.CLASSES)
                self.assertEqual(total, phase["allocated_bytes"], (case, p["title"], phase["phase"]))
            peak = max(x["allocated_bytes"] for x in m["phases"] if x["phase"] in self.RUNNING)
            self.assertEqual(peak, m["allocated_peak_bytes"], (case, p["title"]))
            self.assertEqual(m["framework_bytes"], m["context_bytes"] + m["nccl_bytes"])
            self.assertLessEqual(m["reserved_low_bytes"], m["reserved_bytes"])
            self.assertLessEqual(m["reserved_bytes"], m["reserved_high_bytes"])
            self.assertLessEqual(m["allocated_peak_bytes"], m["reserved_high_bytes"])

    def test_verdict_follows_from_the_numbers(self):
        for case, p in self.plans():
            m = p["memory"]
            state = ("no" if m["allocated_peak_bytes"] > m["capacity_bytes"] else
                     "yes" if m["reserved_high_bytes"] <= m["capacity_bytes"] else "tight")
            self.assertEqual(m["fits_state"], state, (case, p["title"]))
            self.assertEqual(m["short_bytes"], max(0, m["allocated_peak_bytes"] - m["capacity_bytes"]))

    def test_transfers_sum_to_sent(self):
        for case, p in self.plans():
            v = p["volume"]
            wire = [t for t in v["transfers"] if t["link"] in ("intra_node", "inter_node")]
            sent = sum(t["sent_bytes"] for t in wire)
            self.assertAlmostEqual(sent, v["sent_bytes_per_gpu"], delta=max(1, 1e-6 * sent), msg=(case, p["title"]))
            both = v["intra_node_bytes_per_gpu"] + v["inter_node_bytes_per_gpu"]
            self.assertAlmostEqual(both, v["sent_bytes_per_gpu"], delta=max(1, 1e-6 * sent), msg=(case, p["title"]))

    def test_host_phases_sum(self):
        for case, p in self.plans():
            for phase in p["host"]["phases"]:
                total = sum(v for k, v in phase.items() if k.endswith("_bytes"))
                self.assertEqual(total, phase["bytes_per_node"], (case, p["title"], phase["phase"]))


class HostThreshold(unittest.TestCase):
    """70B with CPU offload: a 1.1 TB host no, a 2 TB host yes (docs/method.md §sizes)."""

    def need(self, cluster):
        result, _ = plan("llama-2-70b", cluster, "--strategy", "zero3", "--offload-optimizer", "cpu",
                         "--offload-param", "cpu", "--recompute", "full")
        return result["plans"][0]["host"]

    def test_threshold(self):
        small, large = self.need("p4de.24xlarge"), self.need("dgx-a100")
        self.assertGreater(small["bytes_per_node"], 1.27e12)
        self.assertFalse(small["fits"])
        self.assertTrue(large["fits"])


class Surface(unittest.TestCase):
    def test_exit_statuses(self):
        self.assertEqual(run("plan", "llama-2-7b", "dgx-h100").returncode, 0)
        self.assertEqual(run("plan", "llama-3.1-405b", "1xA10").returncode, 1)
        self.assertEqual(run("plan", "llama-2-7b").returncode, 2)
        self.assertEqual(run("plan", "llama-2-7b", "dgx-h100", "--sequence", "1").returncode, 2)
        self.assertEqual(run("plan", "lama-2-7b", "dgx-h100").returncode, 3)
        self.assertEqual(run("frobnicate").returncode, 2)
        self.assertEqual(run().returncode, 2)

    def test_what_cannot_run_is_a_usage_error(self):
        for words in (["--strategy", "ddp", "--offload-optimizer", "cpu"],
                      ["--strategy", "hsdp,mics", "--shard-group", "3"], ["--global-batch", "9"],
                      ["--strategy", "fsdp2-reshard=3"], ["--recompute", "every-0"],
                      ["--strategy", "fsdp2-reshard=99999999999999999999"],
                      ["--lora-rank", "8", "--lora-targets", "q_proj,nosuch"],
                      ["--set", "recipe.micro_batch=-3"],
                      ["--set", "cluster.host_dram_bytes_per_s=0"]):
            done = run("plan", "llama-2-7b", "dgx-a100", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (words, done.stderr))
            self.assertTrue(done.stderr.startswith("shardplan: "), words)
        some = run("plan", "llama-2-7b", "dgx-a100", "--strategy", "ddp,zero2", "--offload-optimizer", "cpu")
        self.assertEqual(some.returncode, 0)  # one of the two can

    def test_rates_and_memory_of_nothing_are_usage_errors(self):
        for words in (["--net", "0Gb/s"], ["--net", "1e-300Gb/s"], ["--nvme", "0GB/s/1GB/s"],
                      ["--nvme", "1GB/s/0GB/s"], ["--host-memory", "0"]):
            done = run("plan", "llama-2-7b", "dgx-a100", "--nodes", "2", "--with-offload", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (words, done.stderr))

    def test_min_gpus_of_a_derived_shard_group(self):
        for gpus in ("3", "7", "12"):
            result, _ = plan("llama-2-7b", "dgx-a100", "--strategy", "hsdp,mics", "--gpus", gpus)
            for p in result["plans"]:
                self.assertTrue(p["fits"])
                self.assertEqual(p["memory"]["min_gpus"], 2, (gpus, p["title"]))

    def test_impossible_claims_what_was_tried(self):
        one, done = plan("llama-3-70b", "dgx-a100", "--strategy", "ddp")
        self.assertEqual((one["recommendation"]["choice"], done.returncode), ("impossible", 1))
        self.assertIn("--strategy all", one["recommendation"]["reason"])

    def test_knob_beside_offload(self):
        """What is said of turning a knob instead is what plan says when asked for it."""
        result, _ = plan("llama-2-7b", "8xV100-32GB", "--precision", "fp16-mixed")
        self.assertEqual(result["recommendation"]["choice"], "offload")
        said = [re.match(r"or, without offload, (.*): (\d+) tokens/s per GPU, (.*) times", text)
                for text in result["recommendation"]["actions"]]
        options, tokens, times = next(m for m in said if m).groups()
        best = result["plans"][result["recommendation"]["plan_index"]]["time"]["tokens_per_s_per_gpu"]
        other = plan("llama-2-7b", "8xV100-32GB", "--precision", "fp16-mixed", *options.split())[0]
        rate = other["plans"][0]["time"]["tokens_per_s_per_gpu"]
        self.assertTrue(other["plans"][0]["fits"])
        self.assertEqual(float(tokens), round(rate))
        self.assertAlmostEqual(float(times), rate / best, delta=0.06)

    def test_knob_takes_the_fastest(self):
        result, _ = plan("llama-2-7b", "8xA100-40GB", "-b", "8")
        self.assertEqual(result["recommendation"]["choice"], "change_knobs")
        rates = [p["time"]["tokens_per_s_per_gpu"]
                 for p in plan("llama-2-7b", "8xA100-40GB", "-b", "8", "--recompute", "full")[0]["plans"]
                 if p["fits"]]
        self.assertIn("with --recompute full, ", result["recommendation"]["reason"])
        self.assertIn(f"{max(rates):.0f} tokens/s", result["recommendation"]["reason"])

    def test_a_tight_plan_says_so_and_names_a_safe_one(self):
        def advise(*args):
            done = run("advise", *args, "--json", "-", "--quiet")
            result = json.loads(done.stdout)
            return result, result["ways"][result["best_way"]]
        result, best = advise("llama-2-7b", "dgx-a100", "--strategy", "fsdp1")
        safe = result["safe_way"]
        self.assertEqual(best["fits_state"], "tight")
        self.assertGreater(best["reserved_high_bytes"], best["capacity_bytes"])
        self.assertIn("memory is tight: ", result["sentence"])
        self.assertEqual(safe["fits_state"], "yes")
        self.assertLessEqual(safe["reserved_high_bytes"], safe["capacity_bytes"])
        self.assertLess(safe["tokens_per_s"], best["tokens_per_s"])
        action = result["recommendation"]["actions"][1]
        self.assertIn("if it runs out of memory", action)
        # The options named are the plan meant.
        again, _ = plan("llama-2-7b", "dgx-a100", *action.split(": ", 1)[1].split())
        self.assertEqual(again["plans"][0]["memory"]["fits_state"], "yes")
        self.assertEqual(again["plans"][0]["memory"]["allocated_peak_bytes"], safe["allocated_peak_bytes"])
        result, best = advise("llama-2-7b", "dgx-a100", "--strategy", "fsdp2")
        self.assertEqual(best["fits_state"], "yes")
        self.assertIsNone(result["safe_way"])
        self.assertNotIn("tight", result["sentence"])

    def test_bandwidth_curves_compare_over_equal_tokens(self):
        done = run("advise", "llama-2-7b", "p4d.24xlarge", "--nodes", "4", "--json", "-", "--quiet")
        result = json.loads(done.stdout)
        curves = {c["title"]: c for c in result["bandwidth_curves"]}
        self.assertLessEqual({"same hardware", "HSDP", "CPU offload", "8 nodes", "16 nodes"}, set(curves))
        self.assertEqual(curves["HSDP"]["plan"], "hsdp")
        for c in curves.values():
            steps = [p["step_s"] for p in c["points"]]
            self.assertEqual(steps, sorted(steps, reverse=True), c["title"])
            way = next((w for w in result["ways"] if w["title"] == c["title"]), None)
            if way:  # the tokens of the step that the curve is of
                self.assertAlmostEqual(c["tokens_per_step"] / way["step_s"] / way["tokens_per_s"], 1, 6)
        # Inside the node HSDP gathers, so that it needs the network least.
        gain = {t: c["points"][0]["step_s"] / c["points"][-1]["step_s"] for t, c in curves.items()}
        self.assertLess(gain["HSDP"], gain["same hardware"])
        self.assertTrue(any(i["path"] == "gpu.hbm_bytes_per_s" for i in result["inputs"]))

    def test_a_count_in_k_is_decimal_and_says_so(self):
        for words, value in ((("--seq", "4k"), 4000), (("--seq=4K",), 4000), (("--seq", "4Ki"), 4096),
                             (("--set", "recipe.seq=2k"), 2000)):
            done = run("plan", "llama-2-7b", "dgx-a100", "--strategy", "zero3", *words, "--json", "-")
            result = json.loads(done.stdout)
            self.assertEqual(result["plans"][0]["recipe"]["seq"], value)
            self.assertEqual("k is 1000 in a count; for 1024 write Ki" in done.stderr, value != 4096, done.stderr)

    def test_what_fits_a_step_but_not_a_checkpoint_says_so(self):
        # 33.7e9 parameters gathered in 16 bits are 62.8 GiB, on a card of 40 GB.
        words = ("codellama-34b", "8xA100-40GB", "--strategy", "fsdp1", "--lora-rank", "8", "--recompute", "full")
        result, _ = plan(*words)
        save = [p for p in result["plans"][0]["memory"]["phases"] if p["phase"] == "save"][0]
        self.assertFalse(save["fits"])
        self.assertAlmostEqual(save["gather_bytes"] / 2**30, 62.8, delta=0.5)
        note = [x for x in result["recommendation"]["actions"] if x.startswith("save takes ")]
        self.assertEqual(len(note), 1)
        self.assertIn("--set recipe.full_state_dict=false", note[0])
        self.assertIn("fsdp1: " + note[0], run("plan", *words).stdout)
        result, _ = plan(*words, *note[0].split(": ")[1].split())
        self.assertFalse(any("save takes" in x for x in result["recommendation"]["actions"]))

    def test_what_the_host_cannot_hold_is_not_told_of_the_card(self):
        # Eight ranks load 8.03e9 x 2 bytes each: 119.7 GiB on a node of 93.1 GiB.
        result, _ = plan("llama-3-8b", "8xH100", "--host-memory", "100GB", "--strategy", "zero1")
        note = [x for x in result["recommendation"]["actions"] if x.startswith("load takes ")]
        self.assertEqual(note, ["load takes 119.66 GiB, more than fits in the 93.13 GiB of a node's host memory"])

    def test_a_bubble_says_what_fills_it(self):
        # (stages - 1) / (stages - 1 + micro-steps): 7/8, 7/39.
        words = ("llama-3.1-405b", "dgx-h100", "--nodes", "64", "--tp", "8", "--pp", "8", "--strategy", "fsdp2")
        said = [x for x in plan(*words)[0]["recommendation"]["actions"] if x.startswith("raise --grad-accum")]
        self.assertEqual(len(said), 1)
        self.assertTrue(said[0].endswith("a pipeline of 8 stages idles 88 % of a step of 1 micro-step, 18 % of one of 32"))
        more = plan(*words, "--grad-accum", "32")[0]["recommendation"]["actions"]
        self.assertFalse(any(x.startswith("raise --grad-accum") for x in more))

    def test_one_gpu_shards_nothing(self):
        done = run("plan", "llama-7b", "8xA100-80GB", "--gpus", "1", "--strategy", "fsdp1")
        self.assertIn("fsdp1: one GPU: shard degree 1, so it shards nothing", done.stdout)
        self.assertNotIn("shard degree 1", run("plan", "llama-7b", "8xA100-80GB", "--strategy", "fsdp1").stdout)

    def test_precision_hint(self):
        result = json.loads(run("advise", "llama-2-7b", "8xV100-32GB", "--json", "-", "--quiet").stdout)
        self.assertTrue(any(text.startswith("--precision fp16-mixed") for text in result["recommendation"]["actions"]))

    def test_a_missing_peak_is_a_reason_not_a_crash(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cluster.json")
            gpu = {"schema": "shardplan.gpu/1", "id": "own", "name": "own", "pcie_generation": 4}
            for key, value in (("memory_nominal_bytes", 2**35), ("hbm_bytes_per_s", 1e12), ("bf16", 2e14)):
                gpu[key] = {"value": value, "provenance": "spec", "source": "data sheet"}
            gpu["peak_flop_per_s"] = {"bf16": gpu.pop("bf16")}
            for missing, precision, word in ((None, "fp32", "peak"), ("hbm_bytes_per_s", "bf16-mixed", "hbm"),
                                             ("pcie_generation", "bf16-mixed", "between GPUs")):
                with open(path, "w", encoding="utf-8") as f:
                    json.dump({"schema": "shardplan.cluster/1", "name": "own", "nodes": 1, "gpus_per_node": 8,
                               "gpu": {k: v for k, v in gpu.items() if k != missing}}, f)
                result, done = plan("gpt2", path, "--strategy", "ddp,zero3,fsdp1,fsdp2", "--precision", precision)
                self.assertEqual(done.returncode, 0, done.stderr)
                for p in result["plans"]:
                    self.assertIsNone(p["time"]["step_s"])
                    self.assertIn(word, p["time"]["reason"])

    def test_nearest_names(self):
        self.assertIn("llama-2-7b", run("plan", "lama-2-7b", "dgx-h100").stderr)
        self.assertIn("dgx-h100", run("plan", "llama-2-7b", "dgx-h10").stderr)
        self.assertIn("plan", run("paln").stderr)
        self.assertIn("micro-batch", run("plan", "gpt2", "1xA10", "--micro-bacth", "1").stderr)

    def test_json_alone_on_stdout(self):
        done = run("plan", "gpt2", "1xA10", "--json", "-")
        self.assertEqual(json.loads(done.stdout)["schema"], "shardplan.plan/1")

    def test_file_and_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            done = run("plan", "gpt2", "1xA10", "--json", path)
            self.assertIn("Recommendation", done.stdout)
            with open(path, encoding="utf-8") as f:
                self.assertEqual(json.load(f)["model"]["parameters"], 124439808)
            missing = run("plan", "gpt2", "1xA10", "--json", os.path.join(folder, "no", "plan.json"))
            self.assertEqual(missing.returncode, 4)
            self.assertEqual(os.listdir(folder), ["plan.json"])

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_an_answer_lost_on_a_full_disk_is_no_answer(self):
        for words in (["plan", "gpt2", "1xA10"], ["plan", "gpt2", "1xA10", "--json", "-"], ["--help"],
                      ["simulate", "gpt2", "8xA100-80GB", "--strategy", "zero3"], ["catalog", "list"],
                      ["plan", "llama-3.1-405b", "1xA10"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 4, (words, done.stderr))
            self.assertIn("standard output", done.stderr)

    def test_the_other_programs_say_so_too(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(PROGRAM)))
        for name, words in (("bench/shardbench", ["--help"]), ("bench/shardbench", ["--version"]),
                            ("bench/shardbench", ["gemm", "--help"]), ("reports/shardreport", ["--help"]),
                            ("reports/shardreport", ["--version"])):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([os.path.join(root, name), *words], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=60)
            self.assertEqual(done.returncode, 4, (name, words, done.stderr))
            self.assertIn("standard output", done.stderr)

    def test_a_plan_that_fits_without_a_time_is_not_called_impossible(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cluster.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"schema": "shardplan.cluster/1", "name": "bare", "nodes": 1, "gpus_per_node": 1,
                           "gpu": {"schema": "shardplan.gpu/1", "id": "new", "name": "new", "vendor": "nvidia",
                                   "memory_nominal_bytes": {"value": 2**36, "provenance": "spec", "source": "x"}}}, f)
            done = run("advise", "gpt2", path, "--json", "-")
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = json.loads(done.stdout)
            self.assertEqual(answer["recommendation"]["choice"], "as_is")
            self.assertIn("time is unknown", answer["recommendation"]["reason"])
            self.assertIn("peak", answer["ways"][0]["reason"])

    def test_same_input_same_bytes(self):
        one, two = (run("plan", "llama-3-8b", "dgx-h100", "--json", "-").stdout for _ in range(2))
        self.assertEqual(one, two)

    def test_overflowing_values_are_refused(self):
        for words in (["--micro-batch", "1e18"], ["--seq", "99999999999999999999"], ["--grad-accum", "0"],
                      ["--micro-batch", "-1"], ["--gpus", "0"], ["--nodes", "1e12"]):
            done = run("plan", "gpt2", "1xA10", *words)
            self.assertIn(done.returncode, (2, 3), (words, done.stdout[-300:], done.stderr))
            self.assertTrue(done.stderr.startswith("shardplan: "), words)

    def test_help_everywhere(self):
        listing = run("--help").stdout
        for name in ("plan", "simulate", "advise", "sweep", "bench", "report", "catalog"):
            self.assertIn(f"  {name} ", listing)
            self.assertEqual(run(name, "--help").returncode, 0, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
