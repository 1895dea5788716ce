// SPDX-License-Identifier: Apache-2.0
// safetensors headers: files made here, single and sharded, compared with the inventory; hostile
// ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "describe/safetensors.h"

#define CONFIG                                                                                     \
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 8,\n"                  \
    "\"intermediate_size\": 16, \"num_attention_heads\": 2, \"vocab_size\": 32,\n"                 \
    "\"torch_dtype\": \"bfloat16\"}"

struct folder {
    char path[64];
    struct arena *a;
};

static void folder_init(struct folder *f) {
    strcpy(f->path, "/tmp/shardplan-weights-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->a = arena_create();
}

static void folder_finish(struct folder *f) {
    char *command = arena_printf(f->a, "rm -r '%s'", f->path);
    assert_int_equal(system(command), 0);
    arena_destroy(f->a);
}

static void put(struct folder *f, const char *name, const void *bytes, size_t n) {
    FILE *out = fopen(arena_printf(f->a, "%s/%s", f->path, name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(out);
}

static void put_text(struct folder *f, const char *name, const char *text) {
    put(f, name, text, strlen(text));
}

// 8 bytes of length, the header, `data_bytes` of zeros.
static void put_safetensors(struct folder *f, const char *name, const char *header,
                            uint64_t data_bytes) {
    uint64_t n = strlen(header);
    unsigned char *all = arena_alloc(f->a, 8 + n + data_bytes);
    for (size_t i = 0; i < 8; i++)
        all[i] = (unsigned char)(n >> (8 * i));
    memcpy(all + 8, header, n);
    put(f, name, all, 8 + n + data_bytes);
}

struct text {
    char *bytes;
    size_t used;
    uint64_t data_bytes;
    struct arena *a;
    char *map; // "name": "file" pairs of an index, when the text belongs to `file`
    const char *file;
};

static void text_add(struct text *t, const char *name, uint64_t rows, uint64_t cols) {
    uint64_t n = rows * (cols ? cols : 1) * 2;
    const char *shape = cols ? arena_printf(t->a, "%" PRIu64 ", %" PRIu64, rows, cols)
                             : arena_printf(t->a, "%" PRIu64, rows);
    const char *entry =
        arena_printf(t->a,
                     "%s\"%s\": {\"dtype\": \"BF16\", \"shape\": [%s], "
                     "\"data_offsets\": [%" PRIu64 ", %" PRIu64 "]}",
                     t->used > 1 ? ", " : "", name, shape, t->data_bytes, t->data_bytes + n);
    strcpy(t->bytes + t->used, entry);
    t->used += strlen(entry);
    if (t->file)
        strcat(t->map, arena_printf(t->a, "%s\"%s\": \"%s\"", *t->map ? ", " : "", name, t->file));
    t->data_bytes += n;
}

static struct text text_start(struct arena *a) {
    struct text t = {arena_alloc(a, 1 << 16), 1, 0, a, NULL, NULL};
    t.bytes[0] = '{';
    return t;
}

static void add_block(struct text *t, const char *prefix, int layer) {
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } tensors[] = {
        {"self_attn.q_proj", 8, 8}, {"self_attn.k_proj", 8, 8}, {"self_attn.v_proj", 8, 8},
        {"self_attn.o_proj", 8, 8}, {"mlp.gate_proj", 16, 8},   {"mlp.up_proj", 16, 8},
        {"mlp.down_proj", 8, 16},   {"input_layernorm", 8, 0},  {"post_attention_layernorm", 8, 0}};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        text_add(t, arena_printf(t->a, "%slayers.%d.%s.weight", prefix, layer, tensors[i].name),
                 tensors[i].rows, tensors[i].cols);
}

static void finish(struct folder *f, struct text *t, const char *name) {
    strcpy(t->bytes + t->used, ", \"__metadata__\": {\"format\": \"pt\"}}  ");
    put_safetensors(f, name, t->bytes, t->data_bytes);
}

static struct model load(struct folder *f) {
    struct err e = {0};
    struct model m;
    if (!model_load(f->path, f->a, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

static void single_file_matches(void **state) {
    (void)state;
    struct folder f;
    folder_init(&f);
    put_text(&f, "config.json", CONFIG);
    assert_null(load(&f).weights);
    struct text t = text_start(f.a);
    text_add(&t, "lm_head.weight", 32, 8);
    text_add(&t, "model.embed_tokens.weight", 32, 8);
    add_block(&t, "model.", 0);
    add_block(&t, "model.", 1);
    text_add(&t, "model.norm.weight", 8, 0);
    text_add(&t, "model.rotary.inv_freq", 4, 0);
    finish(&f, &t, "model.safetensors");
    assert_string_equal(load(&f).weights,
                        "21 tensors in 1 files match, 0 stored in another type, 1 beside them");
    folder_finish(&f);
}

static void expect_load_error(struct folder *f, const char *words) {
    struct err e = {0};
    struct model m;
    assert_false(model_load(f->path, f->a, &m, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    if (!strstr(e.text, words))
        fail_msg("\"%s\" does not say \"%s\"", e.text, words);
}

static void shards_match(void **state) {
    (void)state;
    struct folder f;
    folder_init(&f);
    put_text(&f, "config.json", CONFIG);
    struct text one = text_start(f.a), two = text_start(f.a);
    one.map = two.map = arena_alloc(f.a, 1 << 14);
    one.file = "a.safetensors";
    two.file = "b.safetensors";
    text_add(&one, "model.language_model.embed_tokens.weight", 32, 8);
    add_block(&one, "model.language_model.", 0);
    finish(&f, &one, one.file);
    add_block(&two, "model.language_model.", 1);
    text_add(&two, "model.language_model.norm.weight", 8, 0);
    text_add(&two, "lm_head.weight", 32, 8);
    finish(&f, &two, two.file);
    put_text(&f, "model.safetensors.index.json",
             arena_printf(f.a, "{\"weight_map\": {%s}}", one.map));
    assert_string_equal(load(&f).weights,
                        "21 tensors in 2 files match, 0 stored in another type, 0 beside them");
    put_text(&f, "model.safetensors.index.json",
             arena_printf(f.a, "{\"weight_map\": {%s, \"x\": \"a.safetensors\"}}", one.map));
    expect_load_error(&f, "$.weight_map.x: no shard holds this tensor");
    folder_finish(&f);
}

static void other_shapes_are_errors(void **state) {
    (void)state;
    struct folder f;
    folder_init(&f);
    put_text(&f, "config.json", CONFIG);
    struct text t = text_start(f.a);
    text_add(&t, "model.embed_tokens.weight", 40, 8);
    add_block(&t, "model.", 0);
    finish(&f, &t, "model.safetensors");
    expect_load_error(&f, "\"model.embed_tokens.weight\" is [40, 8], the config gives [32, 8] "
                          "(11 missing, 1 of another shape)");
    folder_finish(&f);
}

static void foreign_names_are_said_not_compared(void **state) {
    (void)state;
    struct folder f;
    folder_init(&f);
    put_text(&f, "config.json", CONFIG);
    struct text t = text_start(f.a);
    text_add(&t, "tok_embeddings.weight", 32, 8);
    finish(&f, &t, "model.safetensors");
    assert_string_equal(load(&f).weights, "1 tensors under names that were not recognised");
    folder_finish(&f);
}

static void index_may_not_leave_the_folder(void **state) {
    (void)state;
    struct folder f;
    folder_init(&f);
    put_text(&f, "config.json", CONFIG);
    put_text(&f, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../../etc/passwd\"}}");
    expect_load_error(&f, "a shard is a file of the same folder");
    put_text(&f, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"gone.safetensors\"}}");
    expect_load_error(&f, "gone.safetensors: No such file");
    put_text(&f, "model.safetensors.index.json", "{}");
    expect_load_error(&f, "\"weight_map\" is missing");
    folder_finish(&f);
}

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"dtype\": \"" dtype "\", \"shape\": [" shape "], \"data_offsets\": [" offsets "]}"

static const struct {
    const char *header, *words;
} hostile[] = {
    {"", "impossible"},
    {"{ ", "expected '\"'"},
    {"{}x", "text after the header's end"},
    {"[]", "expected '{'"},
    {"{\"a\": 1}", "expected '{'"},
    {"{\"a\": {}}", "a tensor needs dtype, shape and data_offsets"},
    {"{\"a\": " ENTRY("F33", "1", "0, 4") "}", "unknown dtype"},
    {"{\"a\": " ENTRY("F32", "1", "4, 0") "}", "data_offsets are not inside the file"},
    {"{\"a\": " ENTRY("F32", "1", "0, 400") "}", "data_offsets are not inside the file"},
    {"{\"a\": " ENTRY("F32", "2", "0, 4") "}", "shape and dtype do not fill data_offsets"},
    {"{\"a\": " ENTRY("F32", "4294967296, 4294967296", "0, 4") "}", "overflows 64 bits"},
    {"{\"a\": " ENTRY("F32", "99999999999999999999", "0, 4") "}", "does not fit 64 bits"},
    {"{\"a\": " ENTRY("F32", "-1", "0, 4") "}", "expected a whole number"},
    {"{\"a\": " ENTRY("F32", "1,1,1,1,1,1,1,1,1", "0, 4") "}", "too many numbers"},
    {"{\"a\": " ENTRY("F32", "1", "0, 4") ", \"b\": " ENTRY("F32", "1", "0, 4") "}", "overlaps"},
    {"{\"a\": " ENTRY("F32", "1", "4, 8") "}", "leaves a hole"},
    {"{\"a\": " ENTRY("F32", "1", "0, 4") ", \"a\": " ENTRY("F32", "1", "4, 8") "}",
     "stands twice"},
    {"{\"a\": {\"dtype\": \"F32\", \"dtype\": \"F32\"}}", "member given twice"},
    {"{\"a\": {\"type\": \"F32\"}}", "unknown member"},
    {"{\"a\\", "unfinished string"},
    {"{\"a\n\": 1}", "control character"},
    {"{\"__metadata__\": {\"x\": [[[[[[[[1]]]]]]]]}}", "expected '\"'"},
};

static void hostile_headers_are_refused(void **state) {
    (void)state;
    struct folder f;
    folder_init(&f);
    const char *path = arena_printf(f.a, "%s/x.safetensors", f.path);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        struct err e = {0};
        struct safetensors s = {0};
        put_safetensors(&f, "x.safetensors", hostile[i].header, 16);
        assert_false(safetensors_read(path, f.a, &s, &e));
        if (!strstr(e.text, hostile[i].words))
            fail_msg("%s: \"%s\" does not say \"%s\"", hostile[i].header, e.text, hostile[i].words);
        assert_null(s.tensors);
    }
    folder_finish(&f);
}

// A length field of 2^63 in a file of 24 bytes costs nothing.
static void lengths_beyond_the_file_allocate_nothing(void **state) {
    (void)state;
    struct folder f;
    folder_init(&f);
    static const uint64_t lengths[] = {17, 1000, 1ULL << 40, 1ULL << 63, UINT64_MAX};
    const char *path = arena_printf(f.a, "%s/x.safetensors", f.path);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        unsigned char all[24] = {0};
        for (size_t k = 0; k < 8; k++)
            all[k] = (unsigned char)(lengths[i] >> (8 * k));
        put(&f, "x.safetensors", all, sizeof all);
        size_t before = arena_used_bytes(f.a);
        struct err e = {0};
        struct safetensors s;
        assert_false(safetensors_read(path, f.a, &s, &e));
        assert_non_null(strstr(e.text, "is impossible"));
        assert_true(arena_used_bytes(f.a) - before < 64);
    }
    folder_finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_file_matches),
        cmocka_unit_test(shards_match),
        cmocka_unit_test(other_shapes_are_errors),
        cmocka_unit_test(foreign_names_are_said_not_compared),
        cmocka_unit_test(index_may_not_leave_the_folder),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(lengths_beyond_the_file_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
