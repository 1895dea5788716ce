#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the code that a compiler does not know (docs/architecture.md §Rules).

lint.py ROOT          check the tree; one line per finding, status 1 when there is any
lint.py --self-test   prove that every rule finds what it is for
"""
import re
import sys
import tempfile
from pathlib import Path

LAYERS = {"base": 0, "describe": 1, "cost": 2, "plan": 3, "judge": 4, "render": 5}
CODE_DIRS = ("planner", "bench", "reports", "kernels", "tests")
CODE_SUFFIXES = {".c", ".h", ".cu", ".cuh"}
SPDX_SUFFIXES = CODE_SUFFIXES | {".py", ".sh", ".build"}
WIDE_SUFFIXES = SPDX_SUFFIXES | {".txt"}
FUNCTION_LINES, SOURCE_LINES, HEADER_LINES, PARAMETERS, COLUMNS = 60, 600, 250, 5, 100
TEST_FUNCTION_LINES = 100  # a test holds its table of cases
TEST_SCRIPT_COLUMNS = 140

# What each folder may include besides its own headers and the system's.
MAY_INCLUDE = {
    "planner": lambda path: path.split("/")[0] in LAYERS or path == "config.h",
    "bench": lambda path: path.startswith(("base/", "kernels/"))
    or path == "config.h" or re.fullmatch(r"describe/(measure|graph)\w*\.h", path) is not None,
    "reports": lambda path: path.startswith("base/"),
    "kernels": lambda path: False,
}
# System headers with one home each: the licence (GSL) and the plain-C promise (the others).
ONLY_IN = {
    "gsl/": ("planner/judge/", "tests/"),
    "cuda": ("bench/", "kernels/", "tests/fakegpu/"),
    "cublas": ("bench/", "kernels/", "tests/fakegpu/"),
    "nccl.h": ("bench/", "tests/fakegpu/"),
    "mpi.h": ("bench/",),
    "liburing": ("bench/",),
}
PRINTING = re.compile(r"\b(?:printf|vprintf|puts|putchar|perror|exit|_exit|abort|stdout|stderr)\b")
# Where a library file has the right to: memory exhausted, "-" as a file, a forked child, a rank.
MAY_PRINT = {
    "planner/base/arena.c": {"abort", "stderr"},
    "planner/base/json_write.c": {"stdout"},
    "planner/describe/measure.c": {"abort"},
    "bench/launch.c": {"stderr", "_exit"},
    "bench/ranks_mpi.c": {"stderr"},
}
SCALE = re.compile(
    r"(?<![\w.])(?:1e\+?(?:3|6|9|12|15)|1024\.0|1073741824|1048576)[fFuUlL]*\b"
    r"|[*/]\s*1000(?:000)*(?:\.0)?\b|\b1000(?:000)*(?:\.0)?\s*[*/]"
    r"|\b1024[uUlL]*\s*\*|\*\s*1024\b|\b1[uUlL]*\)?\s*<<\s*(?:20|30|40)\b"
)
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def strip(text):
    """Comments and the insides of literals become spaces; line numbers stay."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def replace(match):
        text = match.group(0)
        return blank(match) if text[0] == "/" else text[0] + " " * (len(text) - 2) + text[-1]

    return token.sub(replace, text)


class File:
    def __init__(self, root, path):
        self.name = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.split("\n")
        self.is_code = path.suffix in CODE_SUFFIXES and self.name.startswith(CODE_DIRS)
        self.suffix = path.suffix
        self.top = self.name.split("/")[0]
        code = strip(self.text) if self.is_code else ""
        self.includes = [
            (self.text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2))
            for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', self.text, re.M)
        ]
        # Directives are no declarations; a continued one spans lines.
        self.code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.M)
        self.code_lines = self.code.split("\n")


def layer_of(name):
    parts = name.split("/")
    return LAYERS.get(parts[1]) if parts[0] == "planner" and len(parts) > 2 else None


def check_includes(f):
    if f.top not in MAY_INCLUDE:
        return
    for line, kind, path in f.includes:
        for prefix, homes in ONLY_IN.items():
            if path.startswith(prefix) and not f.name.startswith(homes):
                yield line, "include", f"{path} belongs to {' and '.join(homes)}"
        if kind == "<":
            continue
        own = path.startswith(f.top + "/") or ("/" not in path and f.top != "planner")
        if not own and not MAY_INCLUDE[f.top](path):
            yield line, "include", f"{f.top}/ may not include {path}"
        mine, theirs = layer_of(f.name), LAYERS.get(path.split("/")[0])
        if mine is not None and theirs is not None and theirs > mine:
            yield line, "layer", f"{path} lies in a higher layer"


def header_graph(files):
    """Header name as it is included -> the headers it includes."""
    graph = {}
    for f in files:
        if f.suffix == ".h":
            key = f.name.removeprefix("planner/")
            graph[key] = (f, [p for _, kind, p in f.includes if kind == '"'])
    return graph


def check_cycles(files):
    graph, state = header_graph(files), {}

    def visit(key, trail):
        if state.get(key) == "done" or key not in graph:
            return
        if key in trail:
            loop = trail[trail.index(key):] + [key]
            yield graph[key][0], 1, "cycle", " -> ".join(loop)
            return
        for path in graph[key][1]:
            yield from visit(path, trail + [key])
        state[key] = "done"

    for key in sorted(graph):
        yield from visit(key, [])


def check_umbrella(f):
    if f.suffix == ".h" and f.top != "tests":
        local = [path for _, kind, path in f.includes if kind == '"']
        if len(local) > 1 and not f.code.strip():
            yield 1, "umbrella", "a header that only includes others"
        elif len(local) > 10:
            yield 1, "umbrella", f"includes {len(local)} local headers"


def check_printing(f):
    if f.suffix not in (".c", ".h") or f.top not in ("planner", "bench", "reports"):
        return
    allowed = set(MAY_PRINT.get(f.name, ()))
    if f.name.endswith("/main.c"):
        return
    if layer_of(f.name) == LAYERS["render"]:
        allowed |= {"printf", "vprintf", "puts", "putchar", "perror", "stdout", "stderr"}
    if f.top != "planner":
        allowed.add("abort")  # memory exhausted outside an arena
    if re.search(r"\bfork\s*\(", f.code) or f.name.startswith("bench/ranks_"):
        allowed |= {"_exit", "exit"}
    for number, line in enumerate(f.code_lines, 1):
        for match in PRINTING.finditer(line):
            before = line[: match.start()].rstrip()
            named = before.endswith((".", "->", "*")) or "format(" in before  # a member, a type
            if match.group(0) in allowed or named:
                continue
            yield number, "print", f"{match.group(0)} below the program's top"


def check_scale(f):
    if f.top not in ("planner", "bench", "reports") or f.name.startswith("planner/base/units."):
        return
    for number, line in enumerate(f.code_lines, 1):
        match = SCALE.search(line)
        if match:
            yield number, "scale", f"'{match.group(0)}' belongs to base/units"


def top_level(code):
    """Statements and definitions of a file: (line, text up to ';' or '{', ends with '{', lines)."""
    depth, start, parens = 0, None, 0
    body_start = line = 1
    head = ""
    for i, c in enumerate(code):
        if c == "\n":
            line += 1
        if depth == 0:
            if start is None:
                if c.isspace() or c == ";":
                    continue
                start, body_start = i, line
            parens += (c == "(") - (c == ")")
            if c == ";" and parens == 0:
                yield body_start, code[start:i], False, line - body_start + 1
                start = None
            elif c == "{" and parens == 0:
                head, depth = code[start:i], 1
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                is_function = re.search(r"\)\s*(?:__attribute__\s*\(\(.*\)\)\s*)?$", head, re.S)
                if is_function and "=" not in head.split("(")[0]:
                    yield body_start, head, True, line - body_start + 1
                    start = None
                elif re.match(r'extern\s+"', head):
                    start = None
                # else: a type or an initialiser; its ';' ends it


def parameters(head):
    match = re.search(r"\(", head)
    if not match:
        return 0
    depth, count, any_text = 0, 1, False
    for c in head[match.end():]:
        if c == ")" and depth == 0:
            break
        depth += (c == "(") - (c == ")")
        count += c == "," and depth == 0
        any_text = any_text or not c.isspace()
    return count if any_text else 0


def is_constant(statement):
    """Whether the object that a declaration makes is const itself, not only what it points to."""
    declarator = re.sub(r"\{.*\}", "", statement.split("=")[0], flags=re.S)
    before_array = declarator.split("[")[0]
    after_star = before_array.rsplit("*", 1)[1] if "*" in before_array else before_array
    return re.search(r"\bconst\b|\bconstexpr\b|__constant__", after_star) is not None


def is_object(statement):
    text = statement.split("=")[0].strip()
    if re.match(r"(?:typedef|extern|enum|_Static_assert|static_assert)\b", text) or not text:
        return False
    if re.match(r"(?:struct|union)\s+\w+\s*(?:\{.*\})?\s*$", text, re.S):
        return False
    if re.match(r"\w+_function\b[^*]*$", text):  # functions declared through their type
        return False
    return "(" not in text.split("[")[0] or re.match(r"[\w\s*]+\(\s*\*", text) is not None


def check_shape(f):
    if not f.is_code:
        return
    limit = HEADER_LINES if f.suffix in (".h", ".cuh") else SOURCE_LINES
    if len(f.lines) - 1 > limit:
        yield 1, "file", f"{len(f.lines) - 1} lines; the limit is {limit}"
    for line, head, is_function, lines in top_level(f.code):
        name = head.split("(")[0].split()[-1:] or ["?"]
        longest = TEST_FUNCTION_LINES if f.top == "tests" else FUNCTION_LINES
        if is_function and lines > longest:
            yield line, "function", f"{name[0]} has {lines} lines; the limit is {longest}"
        if (is_function or "(" in head) and "typedef" not in head and not is_object(head):
            count = parameters(head) * (not f.name.startswith("tests/fakegpu/"))  # others' interfaces
            if count > parameter_limit(head) and "=" not in head.split("(")[0]:
                yield line, "parameters", f"{name[0]} takes {count}; the limit is {PARAMETERS}"
        if not is_function and f.top != "tests" and is_object(head) and not is_constant(head):
            yield line, "global", f"'{' '.join(head.split('=')[0].split())[:60]}' can change"
    if f.top != "tests":
        for number, line in enumerate(f.code_lines, 1):
            if re.match(r"\s+static\s", line) and not is_constant(line) and "(" not in line:
                yield number, "global", "a static variable that can change"


def parameter_limit(head):
    """An arena and an error record come on top; argc and argv are one."""
    extra = int("argc" in head and "argv" in head)
    extra += bool(re.search(r"struct err \*", head)) + bool(re.search(r"struct arena \*", head))
    return PARAMETERS + extra + 2 * ("__global__" in head)


def check_text(f):
    if f.suffix in SPDX_SUFFIXES or f.name.endswith("meson_options.txt"):
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in f.lines[:2]):
            yield 1, "licence", "the SPDX line is missing"
    if f.suffix not in WIDE_SUFFIXES:
        return
    columns = TEST_SCRIPT_COLUMNS if f.top == "tests" and f.suffix == ".py" else COLUMNS
    for number, line in enumerate(f.lines, 1):
        if len(line) > columns:
            yield number, "columns", f"{len(line)} columns; the limit is {columns}"
        if line != line.rstrip() or "\t" in line:
            yield number, "space", "a tab or a space at the end"
        if f.name != "tests/lint/lint.py" and UNFINISHED.search(line):
            yield number, "unfinished", "finish it or open an issue"


def check(root):
    root = Path(root)
    paths = [p for p in root.rglob("*") if p.is_file() and not skipped(p.relative_to(root))]
    files = [File(root, p) for p in sorted(paths)]
    for f in files:
        for rule in (check_includes, check_umbrella, check_printing, check_scale, check_shape,
                     check_text):
            for line, name, text in rule(f):
                yield f"{f.name}:{line}: {name}: {text}"
    for f, line, name, text in check_cycles(files):
        yield f"{f.name}:{line}: {name}: {text}"


def skipped(path):
    first = path.parts[0]
    return first.startswith((".git", "build", ".venv")) or path.suffix not in WIDE_SUFFIXES \
        or (path.suffix == ".txt" and path.name != "meson_options.txt")


HEAD = "// SPDX-License-Identifier: Apache-2.0\n"
BAD = {
    "layer": ("planner/base/a.c", '#include "cost/memory.h"\n'),
    "include": ("reports/a.c", '#include "describe/model.h"\n'),
    "include ": ("bench/a.c", "#include <gsl/gsl_multifit.h>\n"),
    "cycle": ("planner/base/a.h", '#include "base/a.h"\nint a_of(void);\n'),
    "umbrella": ("planner/base/a.h", '#include "base/b.h"\n#include "base/c.h"\n'),
    "print": ("planner/cost/a.c", 'void a_go(void) {\n    printf("x");\n}\n'),
    "print ": ("planner/render/a.c", "void a_go(void) {\n    exit(1);\n}\n"),
    "scale": ("planner/cost/a.c", "double a_go(double x) {\n    return x * 1e9;\n}\n"),
    "scale ": ("bench/a.c", "static const int a = 1024 * 1024;\n"),
    "global": ("planner/cost/a.c", "static int count;\n"),
    "global ": ("planner/cost/a.c", 'static const char *names[] = {"a"};\n'),
    "global  ": ("bench/a.c", "void a_go(void) {\n    static int calls = 0;\n    calls++;\n}\n"),
    "function": ("planner/cost/a.c", "void a_go(void) {\n" + "    ;\n" * 60 + "}\n"),
    "file": ("planner/cost/a.c", "\n" * 600),
    "parameters": ("planner/cost/a.h", "int a_go(int a, int b, int c,\n int d, int e, int f);\n"),
    "columns": ("planner/cost/a.c", "// " + "x" * 98 + "\n"),
    "space": ("planner/cost/a.c", "int a_go(void); \n"),
    "unfinished": ("planner/cost/a.c", "// TODO: later\n"),
}
GOOD = '''#include "base/err.h"

#include <stdio.h>

struct pair {
    int a, b;
};

enum { LIMIT = 3 };

// printf and 1e9 in a comment, "stdout" and 1024 * 1024 in a string
static const char *const names[] = {"printf(1e9)", "exit"};
static const double sizes[] = {1.1e9, 3.1e6, 1000};
static const struct pair pairs[] = {{1, 2}, {3, 4}};
static const struct {
    const char *alias, *name;
} aliases[] = {{"a", "b"}};

typedef int (*visit)(int);

void a_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool a_check(int a, int b, int c, int d, struct arena *s, struct err *e);

static int a_use(FILE *out, visit v) {
    static const int table[] = {1, 2};
    fprintf(out, "%d", v(table[0]));
    return pairs[0].a + (int)sizeof names;
}
'''


def self_test():
    failures = 0
    for rule, (name, text) in BAD.items():
        failures += expect(name, HEAD + text, rule.strip())
    failures += expect("planner/cost/a.c", "int a_go(void);\n", "licence")
    failures += expect("planner/cost/a.c", HEAD + GOOD, None)
    print(f"{len(BAD) + 2} cases, {failures} failed")
    return failures == 0


def expect(name, text, rule):
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        found = list(check(root))
    rules = {line.split(": ")[1] for line in found}
    if rules == ({rule} if rule else set()):
        return 0
    print(f"{name}: expected {rule}, found {found}\n{text[:400]}")
    return 1


def main(argument):
    if argument == "--self-test":
        return 0 if self_test() else 1
    findings = list(check(argument))
    for line in findings:
        print(line)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
