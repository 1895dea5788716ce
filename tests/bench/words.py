# SPDX-License-Identifier: Apache-2.0
"""What shardbench answers to words it does not know: words.py SHARDBENCH."""
import subprocess
import sys

BENCH = sys.argv[1]
TYPES = '--dtype: no "{}"{}; there are bf16, fp16, fp32, int8'
CASES = [
    ("collectives --backend ncl", 2, '--backend: no "ncl"; nearest is nccl; there are nccl, mpi, null'),
    ("collectives --backend nvme", 2, '--backend: no "nvme"; there are nccl, mpi, null'),
    ("graph none.json --backend host", 2, '--backend: no "host"; there are nccl, mpi, null'),
    ("rehearse none.json --backend nccl", 2, '--backend: no "nccl"; there are gpu, mpi'),
    ("copy --backend mpi", 2, '--backend: no "mpi"; there are cuda, host, null'),
    ("gemm --backend cublas", 2, '--backend: no "cublas"; there are gemm, host, null'),
    ("collectives --op all_gathr", 2,
     '--op: no "all_gathr"; nearest is all_gather; there are all_gather, reduce_scatter, all_reduce, all_to_all, '
     'broadcast, reduce, send_recv'),
    ("collectives -d bf61", 2, TYPES.format("bf61", "; nearest is bf16")),
    ("collectives -d fp8", 2, TYPES.format("fp8", "")),
    ("gemm -d half2", 2, '--dtype: no "half2"; there are bf16, fp16, fp32, tf32, fp8'),
    ("adam --variant avx3", 2, '--variant: no "avx3"; nearest is avx2; there are reference, scalar, avx2, avx512'),
    ("copy --direction h2", 2, "there are h2d, d2h, bidirectional, d2d, p2p, h2h"),
    ("cuda --kernel foo", 2, '--kernel: no "foo"; there are memory, adam, cast, quantize, dequantize, fill, verify, none'),
    ("nvme --pattern raed", 2,
     '--pattern: no "raed"; nearest is read; there are read, write, mixed, swap, swap_pipelined'),
    ("collectives -b 4KiB -e 2KiB", 2, "--end must not be below --begin"),
]


def main():
    here = subprocess.run([BENCH, "--help"], capture_output=True, text=True, check=True).stdout
    here = here.split("Backends here:")[1].splitlines()[0].split()
    cases = CASES + [(f"{command} --backend {name}", 4, f'no backend "{name}"; it has {", ".join(here)}')
                     for command, name in (("collectives", "nccl"), ("collectives", "mpi"), ("copy", "cuda"))
                     if name not in here]
    for words, status, text in cases:
        done = subprocess.run([BENCH, *words.split(), "--force"], capture_output=True, text=True, timeout=60)
        assert done.returncode == status, (words, done.returncode, done.stderr)
        assert done.stderr.count("\n") == 1 and text in done.stderr, (words, done.stderr)
    print(f"ok: {len(cases)} refusals")


main()
