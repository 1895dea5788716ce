#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bash and zsh complete: the generated scripts are run and asked."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
ROOT = Path(os.environ["SHARDPLAN_SOURCE_ROOT"])
# bash splits a typed line at blanks and "=".
ASK = """source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shardplan; printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell):
    done = subprocess.run([PROGRAM, "--generate", shell], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def catalog(kind):
    return {p.stem for p in (ROOT / "models" / kind).glob("*.json")}


class Bash(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.script = os.path.join(cls.folder.name, "completion.bash")
        Path(cls.script).write_text(script("bash"), "utf-8")
        Path(cls.folder.name, "llama-own.json").write_text("{}", "utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def ask(self, *words):
        done = subprocess.run(["bash", "-c", ASK, "bash", self.script, PROGRAM, *words], cwd=self.folder.name,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return set(done.stdout.split())

    def test_commands_and_options(self):
        self.assertEqual(self.ask("s"), {"simulate", "sweep"})
        self.assertEqual(self.ask("plan", "--tok"), {"--tokens"})
        self.assertIn("--pareto", self.ask("sweep", "-"))
        self.assertNotIn("--pareto", self.ask("plan", "-"))

    def test_strategies(self):
        everything = self.ask("plan", "--strategy", "")
        self.assertLessEqual({"all", "ddp", "zero3", "hsdp", "fsdp1-hybrid-zero2", "mics", "zero++"}, everything)
        self.assertEqual(self.ask("plan", "--strategy", "zero"), {"zero1", "zero2", "zero3", "zero++"})
        self.assertEqual(self.ask("plan", "--strategy", "zero3,fsdp2-"),
                         {"zero3,fsdp2-noreshard", "zero3,fsdp2-reshard="})
        self.assertNotIn("zero3,zero3", self.ask("plan", "--strategy", "zero3,"))
        for name in everything - {"all", "fsdp2-reshard="}:  # each is one that plan takes
            done = subprocess.run([PROGRAM, "plan", "gpt2", "dgx-a100", "--strategy", name, "--json", "-"],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(json.loads(done.stdout)["plans"][0]["strategy"], name)

    def test_models_clusters_and_gpus(self):
        llamas = {n for n in catalog("transformers") if n.startswith("llama-3")}
        self.assertEqual(self.ask("plan", "llama-3"), llamas)
        self.assertEqual(self.ask("plan", "llama-o"), {"llama-own.json"})  # a file of one's own
        self.assertEqual(self.ask("plan", "gpt2", "dgx-"), {n for n in catalog("clusters") if n.startswith("dgx-")})
        h100s = {f"16x{n}" for n in catalog("gpus") if n.startswith("h100")}
        self.assertEqual(self.ask("plan", "gpt2", "16xh100"), h100s)
        self.assertEqual(self.ask("plan", "gpt2", "16xh100", "--tp", "2"), set())

    def test_position_is_told_apart_from_values(self):
        clusters = {n for n in catalog("clusters") if n.startswith("p4")}
        self.assertEqual(self.ask("plan", "--tp", "2", "--compile", "gpt2", "p4"), clusters)
        self.assertEqual(self.ask("plan", "--tp", "=", "2", "gpt2", "p4"), clusters)
        self.assertEqual(self.ask("check", "ds.json", "--cluster", "p4"), clusters)
        self.assertEqual(self.ask("emit", "deep"), {"deepspeed"})
        self.assertEqual(self.ask("emit", "deepspeed", "gpt2", "p4"), clusters)

    def test_choices(self):
        self.assertEqual(self.ask("plan", "--precision", "bf16"), {"bf16-pure", "bf16-mixed"})
        self.assertEqual(self.ask("plan", "--precision", "=", "fp"), {"fp32", "fp16-mixed", "fp8"})
        self.assertEqual(self.ask("catalog", "l"), {"list"})
        self.assertEqual(self.ask("catalog", "show", "g"), {"gpus"})
        self.assertIn("h100-sxm5-80gb", self.ask("catalog", "show", "gpus", "h100"))


# A shell in a pseudo-terminal types the line and two tabs; then what it shows is awaited.
ZSH = r"""zmodload zsh/zpty
zpty z zsh -f -i
say() { zpty -w z "$1" }
say "PS1= PROMPT= ; fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; zstyle ':completion:*' list-prompt ''"
say "LISTMAX=0; path=($2 \$path); setopt nolistbeep; echo READY"
while zpty -r z line; do [[ $line == READY* ]] && break; done
zpty -w -n z "$3"$'\t\t'
for i in {1..150}; do
    while zpty -r -t z line; do out+=$line; done
    [[ $out == *$4* ]] && break
    sleep 0.2
done
print -r -- $out
"""


@unittest.skipUnless(shutil.which("zsh"), "no zsh")
class Zsh(unittest.TestCase):
    def completes(self, line, name):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "_shardplan").write_text(script("zsh"), "utf-8")
            done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", folder, os.path.dirname(PROGRAM), line, name],
                                  cwd=folder, capture_output=True, text=True, timeout=120)
        self.assertIn(name, done.stdout)

    def test_names(self):
        self.completes("shardplan plan llama-3", "llama-3.1-405b")
        self.completes("shardplan plan gpt2 dgx-", "dgx-a100")
        self.completes("shardplan plan gpt2 16xh100-s", "16xh100-sxm5-80gb")
        self.completes("shardplan plan --strategy zero3,fsdp2-n", "fsdp2-noreshard")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
