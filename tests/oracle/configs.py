#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: configs.py OUT.json: what DeepSpeed and accelerate themselves make of configurations.

Opt-in: needs deepspeed and accelerate (pip, in a private environment). Writes, per configuration
of config_cases.json, whether the framework refuses it and the resolved values under the planner's
field names; test_config_oracle holds the planner's readers to them.
"""
import json
import os
import pathlib
import re
import sys
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import accelerate  # noqa: E402
import deepspeed  # noqa: E402
import torch  # noqa: E402
from accelerate.utils import dataclasses  # noqa: E402
from accelerate.commands import launch  # noqa: E402
from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin  # noqa: E402
from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402

# FSDP1's plugin asks for a GPU only to know where to broadcast weights to.
dataclasses.is_cuda_available = lambda: True
torch.cuda.current_device = lambda: 0
HERE = pathlib.Path(__file__).parent
ZERO = {
    "reduce_bucket_elements": "reduce_bucket_size",
    "contiguous_gradients": "contiguous_gradients",
    "reduce_scatter": "reduce_scatter",
    "multi_rank_bucket": "use_multi_rank_bucket_allreduce",
    "round_robin_gradients": "round_robin_gradients",
    "sub_group_elements": "sub_group_size",
    "prefetch_bucket_elements": "prefetch_bucket_size",
    "persistence_elements": "param_persistence_threshold",
    "max_live_elements": "max_live_parameters",
    "max_reuse_elements": "max_reuse_distance",
    "gather_16bit_on_save": "gather_16bit_weights_on_model_save",
    "allgather_sequential": "allgather_sequential",
    "all_reduce_for_fetch": "use_all_reduce_for_fetch_params",
    "model_persistence_elements": "model_persistence_threshold",
    "quantized_weights": "zero_quantized_weights",
    "quantized_gradients": "zero_quantized_gradients",
}
OPTIMIZER = {"nvme_buffer_count_optimizer": "buffer_count", "pipeline_read": "pipeline_read",
             "pipeline_write": "pipeline_write", "offload_ratio": "ratio",
             "pin_memory": "pin_memory"}
PARAM = {"nvme_buffer_count_param": "buffer_count", "nvme_buffer_elements_param": "buffer_size",
         "max_in_cpu_elements": "max_in_cpu"}


def text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def from_zero(zero):
    out = {name: text(getattr(zero, attribute)) for name, attribute in ZERO.items()}
    for section, table in (("offload_optimizer", OPTIMIZER), ("offload_param", PARAM)):
        offload = getattr(zero, section)
        device = "none"
        if offload is not None:
            device = str(getattr(offload.device, "value", offload.device))
        out[section] = device
        if device != "none":
            out |= {name: text(getattr(offload, attribute)) for name, attribute in table.items()}
    out["overlap_comm"] = text(bool(zero.overlap_comm))
    return out


def from_deepspeed(config):
    c = DeepSpeedConfig(config)
    out = from_zero(c.zero_config) if c.zero_config.stage else {}
    out["stage"] = str(int(c.zero_config.stage))
    out["clip"] = text(float(c.gradient_clipping))
    bf16 = getattr(c, "bfloat16_config", None)
    out["bf16"] = text(bool(bf16.enabled if bf16 is not None else c.bfloat16_enabled))
    fp16 = getattr(c, "float16_config", None)
    out["fp16"] = text(bool(fp16.enabled if fp16 is not None else c.fp16_enabled))
    return out


def from_accelerate(path):
    for name in [n for n in os.environ if n.startswith(("FSDP_", "ACCELERATE_"))]:
        del os.environ[name]
    parser = launch.launch_command_parser()
    args, defaults, _ = launch._validate_launch_command(
        parser.parse_args(["--config_file", str(path), "train.py"]))
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
        os.environ.update(launch.prepare_deepspeed_cmd_env(args)[1])
        plugin = DeepSpeedPlugin()
        config = plugin.deepspeed_config
        out = {"stage": str(plugin.zero_stage), "clip": text(plugin.gradient_clipping),
               "zero_init": text(bool(plugin.zero3_init_flag)),
               "offload_optimizer": str(plugin.offload_optimizer_device or "none"),
               "offload_param": str(plugin.offload_param_device or "none"),
               "grad_accum": str(config.get("gradient_accumulation_steps"))}
        if plugin.zero_stage == 3:
            out["gather_16bit_on_save"] = text(bool(plugin.zero3_save_16bit_model))
        return {k: v for k, v in out.items() if v not in ("auto", "None")}
    os.environ.update(launch.prepare_multi_gpu_env(args))
    if not args.use_fsdp:
        return {"ddp": "true"}
    plugin = FullyShardedDataParallelPlugin()
    two = plugin.fsdp_version == 2
    out = {"fsdp_version": str(plugin.fsdp_version),
           "cpu_offload": text(type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy" or
                               bool(getattr(plugin.cpu_offload, "offload_params", False))),
           "cpu_ram_efficient_loading": text(bool(plugin.cpu_ram_efficient_loading)),
           "activation_checkpointing": text(bool(plugin.activation_checkpointing)),
           "full_state_dict": text("FULL" in str(plugin.state_dict_type)),
           "wrapped": text(plugin.auto_wrap_policy is not None and
                           "no_wrap" not in str(plugin.auto_wrap_policy).lower())}
    if two:
        out["reshard"] = text(bool(plugin.reshard_after_forward))
    else:
        out["sharding_strategy"] = plugin.sharding_strategy.name
        prefetch = plugin.backward_prefetch
        out["backward_prefetch"] = prefetch.name if prefetch else "NO"
        out["use_orig_params"] = text(bool(plugin.use_orig_params))
        out["sync_module_states"] = text(bool(plugin.sync_module_states))
    policy = plugin.mixed_precision_policy
    if policy is not None:
        out["reduce_dtype"] = str(policy.reduce_dtype).replace("torch.", "")
    return out


def resolve(case):
    try:
        if "deepspeed" in case:
            return from_deepspeed(json.loads(json.dumps(case["deepspeed"]))), None
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
            f.write(case["accelerate"])
            f.flush()
            return from_accelerate(f.name), None
    except Exception as error:  # the framework's refusal is the answer
        text = re.sub(r"/\S+\.yaml", "FILE", f"{type(error).__name__}: {error}")
        return None, text.splitlines()[0][:200]


def main():
    cases = json.loads((HERE / "config_cases.json").read_text())
    out = {"deepspeed": deepspeed.__version__, "accelerate": accelerate.__version__, "cases": []}
    for case in cases:
        values, refusal = resolve(case)
        out["cases"].append(case | {"refused": refusal, "values": values})
        print(f"{case['name']}: {'refused: ' + refusal if refusal else values}")
    pathlib.Path(sys.argv[1]).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
