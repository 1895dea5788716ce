// SPDX-License-Identifier: Apache-2.0
// NCCL's topology XML (NCCL_TOPO_DUMP_FILE): system > cpu > pci > gpu | nic > net.
#include "base/units.h"
#include "describe/import.h"
#include "describe/import_lines.h"

#include <expat.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 32
#define DEVICES_MAX 128

// Where an element stands: its CPU, and the chain of PCIe elements above it.
struct place {
    int64_t numa;
    const char *chain[DEPTH_MAX];
    size_t depth;
    uint64_t generation, lanes;
};

struct xml_device {
    struct topology_device device;
    struct place place;
    uint64_t nvlinks; // to switches
    struct {
        const char *target; // bus id of a peer GPU
        uint64_t count;
    } links[32];
    size_t link_count;
    const char *bus;
    int64_t number; // dev of the GPU; order of the NIC
};

struct xml_reader {
    const struct import_source *s;
    struct place now;
    const char *open[DEPTH_MAX];
    size_t open_depth;
    struct xml_device *devices;
    size_t count;
    XML_Parser parser;
    bool system, too_much;
};

static const char *attribute(const XML_Char **list, const char *name) {
    for (size_t i = 0; list[i]; i += 2)
        if (strcmp(list[i], name) == 0)
            return list[i + 1];
    return NULL;
}

static double number(const char *text, double otherwise) {
    double v;
    return text && import_double(text, &v) ? v : otherwise;
}

static uint64_t generation_of(const char *speed) {
    static const double rates[] = {2.5, 5, 8, 16, 32, 64}; // GT/s of PCIe generations 1 to 6
    double v = speed ? strtod(speed, NULL) : 0;
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (fabs(v - rates[i]) < 0.1 * rates[i])
            return i + 1;
    return 0;
}

static struct xml_device *add_device(struct xml_reader *r) {
    if (r->count == DEVICES_MAX) {
        r->too_much = true;
        return NULL;
    }
    struct xml_device *d = &r->devices[r->count++];
    *d = (struct xml_device){.place = r->now};
    d->device.numa = r->now.numa;
    d->device.nic_bytes_per_s = NAN;
    d->device.pcie_generation = r->now.generation;
    d->device.pcie_lanes = r->now.lanes;
    d->bus = r->now.depth ? r->now.chain[r->now.depth - 1] : "";
    return d;
}

static void open_gpu(struct xml_reader *r, const XML_Char **list) {
    struct xml_device *d = add_device(r);
    if (!d)
        return;
    d->number = (int64_t)number(attribute(list, "dev"), (double)r->count - 1);
    d->device.name = arena_printf(r->s->arena, "GPU%lld", (long long)d->number);
}

static void open_net(struct xml_reader *r, const XML_Char **list) {
    struct xml_device *d = add_device(r);
    if (!d)
        return;
    const char *name = attribute(list, "name");
    double mega = number(attribute(list, "speed"), NAN); // Mb/s
    d->device.nic = true;
    d->device.name = arena_strdup(r->s->arena, name ? name : "net");
    d->device.nic_bytes_per_s = mega > 0 ? mega * UNITS_MEGA / 8 : NAN;
    d->number = (int64_t)r->count;
}

static void open_nvlink(struct xml_reader *r, const XML_Char **list) {
    const char *target = attribute(list, "target"), *class = attribute(list, "tclass");
    uint64_t count = (uint64_t)number(attribute(list, "count"), 0);
    if (r->count == 0 || !target || r->devices[r->count - 1].device.nic)
        return;
    struct xml_device *d = &r->devices[r->count - 1];
    if (class && strncmp(class, "0x0680", 6) == 0)
        d->nvlinks += count; // NVSwitch
    else if (d->link_count < sizeof d->links / sizeof d->links[0]) {
        d->links[d->link_count].target = arena_strdup(r->s->arena, target);
        d->links[d->link_count++].count = count;
    }
}

static void XMLCALL on_open(void *context, const XML_Char *name, const XML_Char **list) {
    struct xml_reader *r = context;
    if (r->open_depth == DEPTH_MAX || r->now.depth == DEPTH_MAX) {
        r->too_much = true;
        XML_StopParser(r->parser, XML_FALSE);
        return;
    }
    r->open[r->open_depth++] = arena_strdup(r->s->arena, name);
    if (strcmp(name, "system") == 0) {
        r->system = true;
    } else if (strcmp(name, "cpu") == 0) {
        r->now.numa = (int64_t)number(attribute(list, "numaid"), -1);
    } else if (strcmp(name, "pci") == 0) {
        const char *bus = attribute(list, "busid");
        r->now.chain[r->now.depth++] = arena_strdup(r->s->arena, bus ? bus : "?");
        r->now.generation = generation_of(attribute(list, "link_speed"));
        r->now.lanes = (uint64_t)number(attribute(list, "link_width"), 0);
    } else if (strcmp(name, "gpu") == 0) {
        open_gpu(r, list);
    } else if (strcmp(name, "net") == 0) {
        open_net(r, list);
    } else if (strcmp(name, "nvlink") == 0) {
        open_nvlink(r, list);
    }
}

static void XMLCALL on_close(void *context, const XML_Char *name) {
    struct xml_reader *r = context;
    if (r->open_depth)
        r->open_depth--;
    if (strcmp(name, "pci") == 0 && r->now.depth)
        r->now.depth--;
    if (strcmp(name, "cpu") == 0)
        r->now.numa = -1;
}

// Deepest common PCIe element: none is the host bridge or beyond, one above both is a bridge.
static enum topology_path pcie_path(const struct place *x, const struct place *y) {
    size_t common = 0;
    if (x->numa != y->numa)
        return PATH_SYS;
    while (common < x->depth && common < y->depth &&
           strcmp(x->chain[common], y->chain[common]) == 0)
        common++;
    if (common == 0)
        return x->depth == 0 || y->depth == 0 ? PATH_PHB : PATH_NODE;
    size_t apart = (x->depth - common) + (y->depth - common);
    return apart <= 2 ? PATH_PIX : PATH_PXB;
}

static struct topology_cell cell_of(const struct xml_device *x, const struct xml_device *y) {
    if (x == y)
        return (struct topology_cell){.path = PATH_SELF};
    for (size_t i = 0; !y->device.nic && i < x->link_count; i++)
        if (strcmp(x->links[i].target, y->bus) == 0)
            return (struct topology_cell){.path = PATH_NVLINK, .links = x->links[i].count};
    if (x->nvlinks && y->nvlinks)
        return (struct topology_cell){.path = PATH_NVLINK,
                                      .links = x->nvlinks < y->nvlinks ? x->nvlinks : y->nvlinks};
    return (struct topology_cell){.path = pcie_path(&x->place, &y->place)};
}

static int gpus_first(const void *a, const void *b) {
    const struct xml_device *x = a, *y = b;
    if (x->device.nic != y->device.nic)
        return x->device.nic ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

static void fill(struct xml_reader *r, struct topology *t) {
    qsort(r->devices, r->count, sizeof *r->devices, gpus_first);
    *t = (struct topology){.count = r->count, .complete = true};
    t->devices = arena_array(r->s->arena, r->count, sizeof *t->devices);
    t->cells = arena_array(r->s->arena, r->count * r->count, sizeof *t->cells);
    for (size_t i = 0; i < r->count; i++) {
        t->devices[i] = r->devices[i].device;
        t->gpus += !r->devices[i].device.nic;
        for (size_t k = 0; k < r->count; k++)
            t->cells[i * r->count + k] = cell_of(&r->devices[i], &r->devices[k]);
    }
}

bool import_nccl_topology(const struct import_source *s, struct topology *out, struct err *e) {
    struct xml_reader r = {.s = s, .now = {.numa = -1}};
    r.devices = arena_array(s->arena, DEVICES_MAX, sizeof *r.devices);
    r.parser = XML_ParserCreate(NULL);
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_open, on_close);
    bool parsed = XML_Parse(r.parser, s->text, (int)s->bytes, 1) == XML_STATUS_OK;
    int line = (int)XML_GetCurrentLineNumber(r.parser);
    const char *why = XML_ErrorString(XML_GetErrorCode(r.parser));
    XML_ParserFree(r.parser);
    if (r.too_much)
        return err_set(e, ERR_INPUT, "%s:%d: deeper than %d elements or more than %d devices",
                       s->name, line, DEPTH_MAX, DEVICES_MAX);
    if (!parsed)
        return err_set(e, ERR_INPUT, "%s:%d: %s", s->name, line, why);
    if (!r.system || r.count == 0)
        return err_set(e, ERR_INPUT, "%s: no <system> with a <gpu> or <net> as NCCL dumps it",
                       s->name);
    fill(&r, out);
    return true;
}
