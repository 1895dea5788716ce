// SPDX-License-Identifier: Apache-2.0
// What a user may write for MODEL: a file, a folder, a catalog name, or a size such as "7B".
#include "describe/model.h"

#include "base/units.h"
#include "describe/catalog.h"
#include "describe/safetensors.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

// Public Llama-like shapes; the shorthand takes the nearest and then fits the number of layers.
static const struct {
    double billions;
    uint64_t layers, hidden, heads, kv_heads, ffn;
} shapes[] = {
    {0.16, 12, 768, 12, 12, 3072}, {1.1, 22, 2048, 32, 4, 5632},
    {3.4, 26, 3200, 32, 32, 8640}, {6.7, 32, 4096, 32, 32, 11008},
    {13, 40, 5120, 40, 40, 13824}, {32.5, 60, 6656, 52, 52, 17920},
    {69, 80, 8192, 64, 8, 28672},  {405, 126, 16384, 128, 8, 53248},
};
#define SHORTHAND_VOCAB 32000
#define SHORTHAND_POSITIONS 4096

static bool is_shorthand(const char *spec) {
    size_t n = strspn(spec, "0123456789.");
    return n > 0 && isdigit((unsigned char)spec[0]) && strchr("bBmMtT", spec[n]) && spec[n] &&
           !spec[n + 1];
}

static bool model_shorthand(const char *spec, struct arena *a, struct model *out, struct err *e) {
    uint64_t wanted;
    if (!units_parse_count(spec, &wanted, e))
        return false;
    if (wanted < (uint64_t)UNITS_MEGA)
        return err_set(e, ERR_INPUT, "model \"%s\": at least 1M parameters", spec);
    double billions = (double)wanted / UNITS_GIGA;
    size_t best = 0;
    for (size_t i = 1; i < sizeof shapes / sizeof shapes[0]; i++)
        if (fabs(log(billions / shapes[i].billions)) < fabs(log(billions / shapes[best].billions)))
            best = i;
    struct model m = {.layers = 1,
                      .hidden = shapes[best].hidden,
                      .heads = shapes[best].heads,
                      .kv_heads = shapes[best].kv_heads,
                      .ffn = shapes[best].ffn,
                      .vocab = SHORTHAND_VOCAB,
                      .max_positions = SHORTHAND_POSITIONS,
                      .stored_dtype = DTYPE_BF16};
    m.name = catalog_normalise(spec, a);
    if (!model_architecture(&m, "llama", e) || !model_finish(&m, a, e))
        return false;
    uint64_t block = m.units[1].parameters, rest = m.parameters - block;
    double layers = ((double)wanted - (double)rest) / (double)block;
    m.layers = layers < 1 ? 1 : (uint64_t)llround(layers);
    if (!model_finish(&m, a, e))
        return false;
    m.source = arena_printf(a,
                            "assumed: Llama-shaped, %" PRIu64 " layers of width %" PRIu64
                            ", %" PRIu64 " parameters; name the model for exact figures",
                            m.layers, m.hidden, m.parameters);
    *out = m;
    return true;
}

// A folder's weights must be those of its config: another shape or a missing tensor is an error.
static bool check_weights(const char *folder, struct arena *a, struct model *m, struct err *e) {
    struct safetensors s;
    struct safetensors_check c;
    bool found = false;
    if (!safetensors_read_folder(folder, a, &s, &found, e))
        return false;
    if (!found)
        return true;
    safetensors_compare(&s, m, a, &c);
    if (!c.comparable) {
        m->weights = arena_printf(a, "%zu tensors under names that were not recognised", s.count);
        return true;
    }
    if (c.missing || c.shaped)
        return err_set(e, ERR_INPUT,
                       "%s: the weights are not those of config.json: %s (%zu missing, %zu of "
                       "another shape)",
                       folder, c.first, c.missing, c.shaped);
    m->weights = arena_printf(a,
                              "%zu tensors in %zu files match, %zu stored in another type, %zu "
                              "beside them",
                              c.matched, s.files, c.typed, c.extra);
    return true;
}

static bool load_folder(const char *folder, struct arena *a, struct model *out, struct err *e) {
    struct model m;
    if (!model_read(arena_printf(a, "%s/config.json", folder), a, &m, e) ||
        !check_weights(folder, a, &m, e))
        return false;
    *out = m;
    return true;
}

bool model_load(const char *spec, struct arena *a, struct model *out, struct err *e) {
    struct stat st;
    const char *path;
    if (stat(spec, &st) == 0 && S_ISDIR(st.st_mode))
        return load_folder(spec, a, out, e);
    if (stat(spec, &st) == 0)
        return model_read(spec, a, out, e);
    if (is_shorthand(spec))
        return model_shorthand(spec, a, out, e);
    size_t n = strlen(spec);
    bool looks_like_path = spec[0] == '.' || spec[0] == '/' ||
                           (n > strlen(".json") && !strcmp(spec + n - strlen(".json"), ".json"));
    if (looks_like_path)
        return err_set(e, ERR_INPUT, "%s: no such file", spec);
    return catalog_find(CATALOG_MODELS, spec, a, &path, e) && model_read(path, a, out, e);
}
