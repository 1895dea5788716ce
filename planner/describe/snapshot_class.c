// SPDX-License-Identifier: Apache-2.0
#include "describe/snapshot.h"

#include <string.h>

const char *const snapshot_class_names[SNAPSHOT_CLASS_COUNT] = {
    "params", "grads",          "optimizer", "gather", "bucket",      "activations",
    "logits", "step_transient", "backward",  "kept",   "side_stream", "unknown"};

struct rule { // both parts must be in the frame; NULL matches anything
    const char *file, *function;
    enum snapshot_class class;
};

// torch 2.x, DeepSpeed 0.1x, Megatron core, bitsandbytes and transformers by their file names.
static const struct rule rules[] = {
    {"torch/optim/", "_init_group", SNAPSHOT_OPTIMIZER},
    {"torch/optim/", NULL, SNAPSHOT_STEP_TRANSIENT},
    {"torch/nn/utils/clip_grad", NULL, SNAPSHOT_STEP_TRANSIENT},
    {"bitsandbytes/optim", "init_state", SNAPSHOT_OPTIMIZER},
    {"bitsandbytes/optim", "get_state_buffer", SNAPSHOT_OPTIMIZER},
    {"deepspeed/ops/adam", NULL, SNAPSHOT_OPTIMIZER},
    {"apex/optimizers", NULL, SNAPSHOT_OPTIMIZER},
    {"megatron/core/optimizer", NULL, SNAPSHOT_OPTIMIZER},
    {"param_and_grad_buffer.py", NULL, SNAPSHOT_GRADS},
    {"deepspeed/runtime/zero", "fp32_partition", SNAPSHOT_OPTIMIZER},
    {"deepspeed/runtime/zero", "initialize_optimizer_states", SNAPSHOT_OPTIMIZER},
    {"deepspeed/runtime/zero", "gather", SNAPSHOT_GATHER},
    {"deepspeed/runtime/zero", "fetch", SNAPSHOT_GATHER},
    {"deepspeed/runtime/zero", "reduce", SNAPSHOT_BUCKET},
    {"deepspeed/runtime/zero", "ipg", SNAPSHOT_BUCKET},
    {"deepspeed/runtime/zero", "partition_grad", SNAPSHOT_GRADS},
    {"deepspeed/runtime/zero/stage", "step", SNAPSHOT_STEP_TRANSIENT},
    {"deepspeed/runtime/zero/partition_parameters.py", NULL, SNAPSHOT_PARAMS},
    {"_fsdp_collectives.py", "gather", SNAPSHOT_GATHER},
    {"_fsdp_collectives.py", "reduce", SNAPSHOT_BUCKET},
    {"_fsdp_param.py", "all_gather", SNAPSHOT_GATHER},
    {"_fsdp_param.py", "unshard", SNAPSHOT_GATHER},
    {"_fsdp_param.py", "grad", SNAPSHOT_GRADS},
    {"_fsdp_param.py", "sharded_param", SNAPSHOT_PARAMS},
    {"flat_param.py", "unshard", SNAPSHOT_GATHER},
    {"flat_param.py", "grad", SNAPSHOT_GRADS},
    {"flat_param.py", NULL, SNAPSHOT_PARAMS},
    {"fsdp/_runtime_utils.py", "unshard", SNAPSHOT_GATHER},
    {"fsdp/_runtime_utils.py", "grad", SNAPSHOT_BUCKET},
    {"torch/nn/parallel/distributed.py", "__init__", SNAPSHOT_BUCKET},
    {"torch/nn/parallel/distributed.py", "_ddp_init_helper", SNAPSHOT_BUCKET},
    {NULL, "c10d::Reducer", SNAPSHOT_BUCKET},
    {"torch/nn/functional.py", "cross_entropy", SNAPSHOT_LOGITS},
    {"torch/nn/functional.py", "nll_loss", SNAPSHOT_LOGITS},
    {NULL, "log_softmax", SNAPSHOT_LOGITS},
    {NULL, "cross_entropy", SNAPSHOT_LOGITS},
    {"loss", "loss", SNAPSHOT_LOGITS},
    {"torch/utils/checkpoint.py", NULL, SNAPSHOT_ACTIVATIONS},
    {NULL, "torch::autograd::Engine", SNAPSHOT_BACKWARD},
    {"torch/autograd/", "backward", SNAPSHOT_BACKWARD},
    {NULL, "from_pretrained", SNAPSHOT_PARAMS},
    {NULL, "load_state_dict", SNAPSHOT_PARAMS},
    {NULL, "reset_parameters", SNAPSHOT_PARAMS},
    {"torch/nn/modules/module.py", "_apply", SNAPSHOT_PARAMS},
    {"torch/nn/modules/module.py", "to_empty", SNAPSHOT_PARAMS},
    {"torch/nn/modules/", "__init__", SNAPSHOT_PARAMS},
    {NULL, "forward", SNAPSHOT_ACTIVATIONS},
};

enum snapshot_class snapshot_frame_class(const char *filename, const char *function) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if ((rules[i].file == NULL || strstr(filename, rules[i].file)) &&
            (rules[i].function == NULL || strstr(function, rules[i].function)))
            return rules[i].class;
    return SNAPSHOT_UNKNOWN;
}
