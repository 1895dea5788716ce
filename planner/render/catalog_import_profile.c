// SPDX-License-Identifier: Apache-2.0
// Traces and snapshots of PyTorch are streamed, not opened whole as the other imports are.
#include "render/catalog_import.h"
#include "render/emit_profile.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 4096 };

enum import_profile_kind catalog_import_sniff(const char *path) {
    char head[HEAD_BYTES + 1];
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return IMPORT_PROFILE_NONE;
    size_t n = fread(head, 1, HEAD_BYTES, f);
    fclose(f);
    bool pickled = n > 1 && (unsigned char)head[0] == 0x80;
    bool packed = n > 1 && (unsigned char)head[0] == 0x1f && (unsigned char)head[1] == 0x8b;
    for (size_t i = 0; i < n; i++)
        if (head[i] == '\0')
            head[i] = ' ';
    head[n] = '\0';
    if (pickled || snapshot_sniff(head))
        return IMPORT_PROFILE_SNAPSHOT;
    return packed || profile_sniff(head) ? IMPORT_PROFILE_TRACE : IMPORT_PROFILE_NONE;
}

bool catalog_import_profile(struct cli *cli, const struct import_request *q,
                            enum import_profile_kind kind) {
    const char *path = cli->rest.items[1];
    struct warnings w = {0};
    struct profile p;
    struct snapshot s;
    if (cli->rest.count > 2)
        return err_set(&cli->err, ERR_USAGE, "%s is of one run: import it alone", path);
    bool trace = kind == IMPORT_PROFILE_TRACE;
    if (trace ? !profile_read(path, cli->arena, &w, &p, &cli->err)
              : !snapshot_read(path, cli->arena, &w, &s, &cli->err))
        return false;
    if (!q->output.quiet)
        cli_warn(cli, &w);
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", trace ? "shardplan.profile/1" : "shardplan.snapshot/1");
    json_add_string(root, "command", cli->command_line);
    if (trace)
        emit_profile_fill(root, &p);
    else
        emit_snapshot_fill(root, &s);
    struct output_request o = q->output;
    if (q->out)
        o.json = q->out;
    if (cli_prints_table(&o)) {
        printf("%s: PyTorch %s\n", path, trace ? "profiler trace" : "memory snapshot");
        if (trace)
            emit_profile_table(&p, stdout);
        else
            emit_snapshot_table(&s, stdout);
    }
    return cli_result(cli, &o, root);
}
