// SPDX-License-Identifier: Apache-2.0
// Saved activations that live on the host between forward and backward; docs/method.md §offload.
#include "plan/step_build.h"

// DeepSpeed's cpu_checkpointing copies to pageable memory and waits; a pageable copy runs at about
// this share of a pinned one.
static const double pageable_share = 0.55;

static bool moves(const struct step_builder *b, uint32_t unit) {
    const struct step_unit_class *k = &b->classes[b->units[unit].class];
    return b->recipe->activation_offload && k->unit->kind == UNIT_BLOCK && k->kept_bytes > 0;
}

static uint32_t copy(struct step_builder *b, uint32_t unit, bool to_device, uint32_t dep) {
    bool waits = recipe_is_deepspeed(b->recipe);
    const struct step_unit_class *k = &b->classes[b->units[unit].class];
    struct step_copy c = {.op = to_device ? OP_ACTIVATION_H2D : OP_ACTIVATION_D2H,
                          .stream = to_device ? STREAM_H2D : STREAM_D2H,
                          .to_device = to_device,
                          .host_blocking = waits,
                          .bytes = k->kept_bytes,
                          .slower = waits ? 1 / pageable_share : 1,
                          .unit = unit,
                          .dep = dep};
    return step_copy(b, &c);
}

// One unit's activations may travel while the next runs: the unit after that reuses their memory.
void step_activation_out(struct step_builder *b, uint32_t unit, uint32_t compute) {
    if (!moves(b, unit))
        return;
    step_stream_wait(b, STREAM_COMPUTE, b->activation_copy);
    step_release(b, b->classes[b->units[unit].class].kept_bytes);
    b->activation_copy = copy(b, unit, false, compute);
}

// Fetched one unit ahead: behind the backward of the unit before the last one issued.
void step_activation_in(struct step_builder *b, uint32_t unit) {
    if (!moves(b, unit))
        return;
    step_claim(b, b->classes[b->units[unit].class].kept_bytes);
    step_stream_wait(b, STREAM_H2D, b->last[STREAM_D2H]);
    step_stream_wait(b, STREAM_COMPUTE, copy(b, unit, true, b->before_last_backward));
}
