// SPDX-License-Identifier: Apache-2.0
#include "describe/tool_json.h"

#include <stdio.h>

static bool refuse_packed(const char *path, struct err *e) {
    unsigned char head[2] = {0};
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return true; // json_stream_open says why
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    if (n == sizeof head && head[0] == 0x80) // PROTO, the first opcode of protocols 2 to 5
        return err_set(
            e, ERR_INPUT,
            "%s: pickled (torch.cuda.memory._dump_snapshot); reading a pickle can run "
            "any code in it, so shardplan reads the JSON form: python3 -c \"import json, "
            "pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), "
            "open(sys.argv[1] + '.json', 'w'), default=str)\" %s",
            path, path);
    if (n == sizeof head && head[0] == 0x1f && head[1] == 0x8b)
        return err_set(e, ERR_INPUT, "%s: gzip; unpack it first: gunzip -k %s", path, path);
    return true;
}

bool tool_json_read(const char *path, tool_json_reader *read, void *context, struct err *e) {
    if (!refuse_packed(path, e))
        return false;
    struct json_stream *s = json_stream_open(path, e);
    if (s == NULL)
        return false;
    bool ok = read(s, context, e);
    json_stream_close(s);
    return ok;
}

bool tool_json_parse(const struct tool_json_text *t, tool_json_reader *read, void *context,
                     struct err *e) {
    struct json_stream *s = json_stream_of_text(t->text, t->bytes, t->name);
    if (s == NULL)
        return err_set(e, ERR_RESOURCE, "%s: out of memory", t->name);
    bool ok = read(s, context, e);
    json_stream_close(s);
    return ok;
}
