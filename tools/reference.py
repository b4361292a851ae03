#!/usr/bin/env python3
"""Pages of the reference, in reStructuredText, made of the comments of the public headers.

One page for each chapter of include/weber.h, and an index.  Each public name has an entry of
Sphinx's C domain; public_names(root) lists the names that the headers declare, read without the
parser of the pages, so that tools/docs.py can compare the two.

Hawkmoth reads such comments too, but not what these headers keep in macros: an option's default is
the third word of its row, and the comment of wb_conv is that of wb_conv_with.
"""
import re
import sys
from pathlib import Path

SKIPPED = ("each.h",)                   # programs do not use its macros
NAME = r"(?:wb|WB)_(?!_)\w*\w(?<!_)"
INTERNAL = re.compile(r"_$|_\d$|_ENUM$|_expected$|^wb_this_|^wb_data_has_|^wb_\w+_takes_a_")
# Comments of macros that have none in the headers.
UNDOCUMENTED = {
    "WB_API": ["Marks a declaration that the library exports."],
    "WB_MOVABLES": ["The kinds of object that wb_to moves: a list of rows."],
    "WB_NO_MORE": ["The last member of a struct of options: one argument too many does not compile."
                   "  A program that needs such a struct in another one defines it as nothing."],
    "WB_INTS": ["A list of integers in an option: .pad = WB_INTS(1, 0).  See wb_ints."],
    "WB_FUNCTOR": ["Describes a struct of the program as a tree: WB_FUNCTOR(agent, actor, critic)."
                   "  See wb_struct."],
    "WB_LAYER": ["Describes a struct of the program as a layer: WB_LAYER(T, f, field, ...).  See"
                 " wb_layer_of."],
    "WB_SPLIT_PARTS": ["The most parts of wb_splitobs_array."],
    "WB_VERSION_": ["The version of the header, as numbers; wb_version() is that of the library."],
}


def headers(root):
    """The headers of the chapters, in the order of include/weber.h."""
    folder = root / "include/weber"
    order = ["base", "tensor", "ops", "indexing", "vision", "signal", "linalg", "nn", "layers",
             "recurrent", "losses", "structs", "models", "adapt", "data", "observations", "images",
             "text", "train", "schedules", "files", "pretrained", "device", "distributed"]
    names = [f"{name}.h" for name in order]
    rest = {path.name for path in folder.glob("*.h")} - set(names) - set(SKIPPED)
    return [folder / name for name in names + sorted(rest) if not name.startswith("cxx")]


def for_c(text):
    """The text without what only C++ sees; conditional lines are gone, first branches stay."""
    kept, stack = [], []
    for line in text.split("\n"):
        test = re.match(r"\s*#\s*(ifdef|ifndef|if|else|elif|endif)\b\s*(.*)", line)
        if test:
            word, condition = test.groups()
            if word in ("ifdef", "ifndef", "if"):
                stack.append(not (word == "ifdef" and condition == "__cplusplus"))
            elif word == "endif":
                stack.pop()
            else:
                stack[-1] = not stack[-1]
            kept.append("")
        else:
            kept.append(line if all(stack) else "")
    return "\n".join(kept)


def public_names(root):
    """{name: header} of all names that the headers declare for programs in C."""
    found = {}
    for path in headers(root):
        text = path.read_text()
        code = re.sub(r"/\*.*?\*/", " ", for_c(text), flags=re.S)
        code = re.sub(r"#\s*define (\w+)(?:[^\\\n]|\\\n|\\.)*", r" \1 ", code)
        code = re.sub(r"#\s*(undef|include)[^\n]*", " ", code)
        names = set(re.findall(rf"\b{NAME}\b", code))
        for begin, listed in re.findall(r"(WB_\w*)##NAME,\s*(\w+)\(", text):
            rows = re.search(rf"#define {listed}\(X\)(.*?)\n\n", text, re.S).group(1)
            names |= {begin + row for row in re.findall(r"\bX\((\w+)", rows)}
        for name in names:
            if not INTERNAL.search(name):
                found.setdefault(name, path.name)
    return found


# ---- texts ---------------------------------------------------------------------------------------


def literal(text):
    return f"``{text}``"


def call_end(text, start):
    """The index behind the parenthesis that closes the one at `start`; 0 if there is none."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return 0


def inline(text):
    """Plain text of a comment as reStructuredText: names, calls and options are literals."""
    out, i = [], 0
    pattern = re.compile(
        r"(?<![\w.])(?:`[^`\n]+`|(?:wb|WB|WEBER)_\w+|"
        r"\.[a-z]\w+(?: = (?:\{[^{}]*\}|[-\w.\"]*[\w\"]))?)")
    while True:
        match = pattern.search(text, i)
        if not match:
            out.append(escape(text[i:]))
            return "".join(out)
        out.append(escape(text[i:match.start()]))
        end = match.end()
        quoted = match.group(0)[0] == "`"
        if text[end:end + 1] == "(" and not quoted and not match.group(0).startswith("."):
            end = call_end(text, end) or end
        elif match.group(0).startswith("WEBER_"):
            value = re.match(r"=[\w:.]*\w", text[end:])
            end += value.end() if value else 0
        code = text[match.start():end].rstrip()
        if re.search(r"[\w^]$", out[-1]):
            out.append("\\ ")
        out.append(literal(code.strip("`")))
        if re.match(r"[\w^·]", text[end:]):
            out.append("\\ ")
        i = match.start() + len(code)


def escape(text):
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def comment_lines(comment):
    """The lines of a comment without its frame; the text begins in column 0."""
    body = re.sub(r"^/\*+ ?|\s*\*/$", "", comment)
    lines = body.split("\n")
    return [lines[0]] + [re.sub(r"^\s*\* ?", "", line) for line in lines[1:]]


def prose(lines):
    """Lines of a comment as reStructuredText: paragraphs, lists, and blocks of what is indented."""
    out, paragraph, block, i = [], [], [], 0

    def flush():
        if paragraph:
            text = " ".join(paragraph)
            errors = re.search(r"(?:^|(?<=[.)>] )) ?(Errors?:|Errors as )", text)
            if errors and errors.start():
                out.append(inline(text[:errors.start()].rstrip()))
            if errors:
                word = errors.group(1)
                rest = text[errors.end() if word[-1] == ":" else errors.start(1) + len("Errors"):]
                colon = ":" if word[-1] == ":" else ""
                out.append(f"**{word.strip(': as')}{colon}**{inline(rest)}")
            else:
                out.append(inline(text))
            paragraph.clear()
        if block:
            while not block[-1].strip():
                block.pop()
            width = min(len(x) - len(x.lstrip()) for x in block if x.strip())
            text = [x[width:] for x in block]
            out.append(f".. code-block:: {language(text)}\n\n" +
                       "\n".join(f"   {x}".rstrip() for x in text))
            block.clear()

    while i < len(lines):
        line = lines[i]
        item = re.match(r"(\s*)- (.*)", line)
        if item and not block:
            flush()
            items, indent = [], len(item.group(1))
            while i < len(lines):
                next_item = re.match(r"(\s*)- (.*)", lines[i])
                if next_item:
                    items.append([next_item.group(2)])
                elif len(lines[i]) - len(lines[i].lstrip()) > indent and lines[i].strip():
                    items[-1].append(lines[i].strip())
                else:
                    break
                i += 1
            out.append("\n".join(f"* {inline(' '.join(x))}" for x in items))
            continue
        if not line.strip():
            if block:
                rest = next((x for x in lines[i:] if x.strip()), "")
                if rest.startswith("   "):
                    block.append("")
                    i += 1
                    continue
            flush()
        elif line.startswith("  ") and (block or not paragraph or paragraph[-1][-1:] in ".:)"
                                        or line.startswith("     ")
                                        or re.match(r" +\S.*[\[=]", line)
                                        or re.match(r"  \w+\(", line)):
            if not block:
                flush()
            block.append(line)
        else:
            if block:
                flush()
            paragraph.append(line.strip())
        i += 1
    flush()
    return "\n\n".join(out)


def language(lines):
    """The language of a block: "c" if its lines look like C and the lexer accepts them."""
    if not any(re.search(r"[;{]\s*(//.*|/\*.*)?$|^WB_LAYER\(|^#include", x) for x in lines):
        return "text"
    try:
        from pygments.lexers import CLexer
        from pygments.token import Error
    except ImportError:                 # only the site needs colours
        return "c"
    tokens = CLexer().get_tokens("\n".join(lines))
    return "text" if any(kind is Error for kind, _ in tokens) else "c"


def indented(text, by="   "):
    return "\n".join(by + line if line else "" for line in text.split("\n"))


# ---- reading headers -----------------------------------------------------------------------------


class Entry:
    """A declaration: kind, name, text of the declaration, comment, and macros that call it."""

    def __init__(self, kind, name, code, doc):
        self.kind, self.name, self.code, self.doc = kind, name, code, doc
        self.macros = []                # (name, parameters, lines of its own comment)
        self.others = []                # further names with the same comment
        self.plain = None               # the function that has the name of the macro


def declaration_end(text, at):
    """The end of the declaration at `at`: behind its semicolon, or behind the body of a function"""
    depth, i = 0, at
    while i < len(text):
        if text.startswith("/*", i):
            i = text.index("*/", i) + 2
            continue
        if text[i] in "({":
            depth += 1
        elif text[i] in ")}":
            depth -= 1
            if depth == 0 and text[i] == "}" and text[at:at + 13] == "static inline":
                return i + 1
        elif text[i] == ";" and depth == 0:
            return i + 1
        i += 1
    return len(text)


def read(path):
    """(head comment, items) of a header: titles of sections, prose, entries and macros."""
    raw = path.read_text()
    text = for_c(raw)
    only_c = [(m.start(), m.end()) for m in
              re.finditer(r"#ifndef __cplusplus\n.*?\n#(?:endif|else)", raw, re.S)]
    head = comment_lines(re.match(r"/\*.*?\*/", text, re.S).group(0))
    items, doc, at = [], None, re.match(r"/\*.*?\*/", text, re.S).end()
    while at < len(text):
        space = re.match(r"\s*", text[at:]).group(0)
        at += len(space)
        if space.count("\n") > 1 and items and items[-1][0] == "macro" and items[-1][4] is doc:
            doc = None
        if at >= len(text):
            break
        if text.startswith("/*", at):
            end = text.index("*/", at) + 2
            comment = text[at:end]
            title = re.match(r"/\* -+ (.*?) -+ \*/", comment, re.S)
            line = text.count("\n", 0, at)
            hidden = any(raw.count("\n", 0, a) < line < raw.count("\n", 0, b) for a, b in only_c)
            doc = None
            if title:
                items.append(("section", title.group(1)))
            elif comment.startswith("/**"):
                doc = comment_lines(comment)
            elif not hidden and text[at - 1] == "\n":
                items.append(("prose", comment_lines(comment)))
            at = end
            continue
        if text[at] == "#":
            end = re.compile(r"(?:/\*.*?\*/|\\\n|[^\n])*", re.S).match(text, at).end()
            define = re.match(r"#\s*define (\w+)(\([^)]*\))?\s*(.*)", text[at:end], re.S)
            if define and define.group(2) == "(OPT, ARG)":
                items.append(("entry", Entry("options", define.group(1)[:-1], define.group(3),
                                             doc)))
                define = None
            if define:
                items.append(("macro", define.group(1), define.group(2) or "", define.group(3),
                              doc))
            at = end
            continue
        end = declaration_end(text, at)
        code = text[at:end]
        listed = re.match(r"WB_\w+\(\w+\)\n", text[at:])
        if listed:                      # a use of a list of rows, such as WB_MOVABLES
            at += listed.end()
            continue
        at = end
        if re.match(r'extern "C"|\}', code):
            at = at - len(code) + re.match(r'extern "C" \{|\}', code).end()
            continue
        trailing = re.match(r" */\*(.*?)\*/", text[at:], re.S)
        if trailing and "\n" not in text[at:at + trailing.start(1)]:
            at += trailing.end()
            if doc is None:
                doc = [" ".join(x.strip(" *") for x in trailing.group(1).split("\n"))]
        last = items[-1][1] if items and items[-1][0] == "entry" else None
        if doc is None and last and last.kind == "type" and space.count("\n") < 2:
            doc = last.doc
        entry = declared(code, doc)
        if entry and entry.kind == "enum" and not entry.doc:
            entry.doc = UNDOCUMENTED.get(re.search(r"WB_\w+", code).group(0))
        if entry:
            items.append(("entry", entry))
        doc = None
    return head, items


def declared(code, doc):
    """The Entry of a declaration; None for what is not public."""
    flat = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", " ", code, flags=re.S)).strip()
    if flat.startswith("WB_API"):
        flat = re.sub(r"^WB_API (extern )?|;$| WB_PRINTF_\(.*?\)", "", flat)
        name = re.match(r".*?(\w+)(?: ?\(|$)", flat).group(1)
        if "(" in flat:
            name = re.search(r"(\w+)\(", flat).group(1)
        entry = Entry("function" if "(" in flat else "var", name, flat, doc)
    elif re.match(r"(typedef )?enum\b", flat):
        name = re.search(r"(\w+);$", flat)
        if not name and re.search(r"\w##_[ ,]", flat):          # enumerators that end with _
            return None
        entry = Entry("enum", name.group(1) if name else "", code, doc)
    elif flat.startswith("typedef struct") and "{" in flat:
        entry = Entry("struct", re.search(r"(\w+);$", flat).group(1), code, doc)
    elif flat.startswith("typedef struct"):
        entry = Entry("type", re.search(r"(\w+);$", flat).group(1), "", doc)
    elif flat.startswith("typedef"):
        flat = re.sub(r"^typedef |;$", "", flat)
        name = re.search(r"\(\*(\w+)\)|(\w+)(\[.*\])?$", flat)
        entry = Entry("type", name.group(1) or name.group(2), flat, doc)
    else:
        return None
    return None if entry.name and INTERNAL.search(entry.name) else entry


VALUE = r"((?:[^()]|\((?:[^()]|\([^()]*\))*\))+)"
ROW = re.compile(rf"(OPT|ARG)\(([^,]+), (\w+), {VALUE}\)")


def joined(comment):
    """The words of a comment as one line"""
    return " ".join(re.sub(r"^\s*\*? ?", "", x).strip() for x in comment.split("\n")).strip()


def options(code):
    """[(type, name, default, text, by place)] of the rows of a struct of options."""
    found, lead = [], ""
    for part in re.finditer(rf"/\*(.*?)\*/|((?:(?:OPT|ARG)\({VALUE}\) ?)+)(?: */\*(.*?)\*/)?",
                            code.replace("\\\n", "\n"), re.S):
        text = " ".join(filter(None, (lead, joined(part[1] or part[4] or ""))))
        lead = "" if part[2] else text
        for word, kind, name, value in ROW.findall(part[2] or ""):
            value = re.sub(r"WB_INTS\((.*)\)", r"{\1}", re.sub("WB_REQUIRED.*", "required", value))
            if name[-1] != "_":
                found.append((kind, name, re.sub("WB_(EMPTY|NO_LIST)", "{}", value), text,
                              word == "ARG"))
    return found


def members(code):
    """[(type, name, text)] of a struct."""
    body = code[code.index("{") + 1:code.rindex("}")]
    found, at, lead = [], 0, []
    while True:
        at += len(re.match(r"\s*", body[at:]).group(0))
        if at >= len(body):
            return found
        if body.startswith("/*", at):
            end = body.index("*/", at) + 2
            lead += comment_lines(body[at:end])
            at = end
            continue
        depth, end = 0, at
        while body[end] != ";" or depth:
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(body[end], 0)
            end += 1
        member = re.sub(r"\s+", " ", body[at:end])
        at = end + 1
        trailing = re.match(r" */\*(.*?)\*/", body[at:], re.S)
        text, lead = [" ".join(x.strip() for x in lead if x.strip())], []
        if trailing:
            text.append(joined(trailing.group(1)))
            at += trailing.end()
        found += [(*x, " ".join(filter(None, text))) for x in declarators(member)]


def declarators(member):
    """[(type, name)] of what a struct's line declares."""
    pointer = re.match(r"(.*?\(\*)(\w+)(\).*)", member)
    if pointer:
        return [(pointer.group(1) + pointer.group(3), pointer.group(2))]
    kind, rows = "", []
    for part in re.split(r",(?![^(\[]*[)\]])", member):
        match = re.match(r"(.*?)\s*(\**)\s*(?:const )?(\w+)((?:\[[^\]]*\])*)$", part.strip())
        kind = match.group(1) or kind
        if not match.group(3).endswith("_"):
            stars = f" {match.group(2)}" if match.group(2) else ""
            rows.append((f"{kind}{stars}{match.group(4)}", match.group(3)))
    return rows


def enumerators(code, raw):
    """[(name, text)] of an enumeration; rows of a list X are expanded."""
    body = code[code.index("{") + 1:code.rindex("}")]
    found = []
    rows = re.search(r"#define \w+\([^)]*\) (\w+)##NAME,\s*(\w+)\(", body)
    texts = re.sub(r"#[^\n]*", "", body)
    for match in re.finditer(r"\b(WB_\w+)(\s*=\s*[^,/}]+)?\s*,?\s*(?:/\*(.*?)\*/)?", texts, re.S):
        if rows and match.group(1) == rows.group(2):
            listed = re.search(rf"#define {rows.group(2)}\(X\)(.*?)\n\n", raw, re.S).group(1)
            found += [(rows.group(1) + name, " ".join(more.replace("\\", "").split()).strip('"'))
                      for name, more in re.findall(r"X\((\w+), *(.*?)\)", listed)]
        elif not INTERNAL.search(match.group(1)) and not re.match(r"\w+\(", texts[match.start():]):
            found.append((match.group(1), " ".join((match.group(3) or "").split())))
    return found


# ---- writing pages -------------------------------------------------------------------------------


class Reference:
    def __init__(self, root, uses):
        self.root, self.uses = root, uses
        self.read = {path: read(path) for path in headers(root)}
        self.functions = {item[1].name: item[1] for _, items in self.read.values()
                          for item in items if item[0] == "entry" and item[1].name}
        for path, (_, items) in self.read.items():
            self.attach(path, items)
        plain = [entry.plain for entry in self.functions.values() if entry.plain]
        for _, items in self.read.values():
            items[:] = [x for x in items if x[0] != "entry" or x[1] not in plain]

    def attach(self, path, items):
        """Gives each macro to the entry of the function that it calls, or makes it an entry."""
        bodies = {item[1]: item[3] for item in items if item[0] == "macro"}
        kept, group = [], None
        for item in items:
            if item[0] != "macro":
                kept.append(item)
                group = None
                continue
            _, name, parameters, body, doc = item
            if group and group.doc is not doc:
                group = None
            if INTERNAL.search(name) or name.startswith("WEBER_"):
                continue
            doc = doc or next((text for begin, text in UNDOCUMENTED.items()
                               if name.startswith(begin)), None)
            begin = name[3:]
            target = next((self.functions[x] for x in (name, f"{name}_with", f"{name}_array",
                           f"{name}_typed", f"wb_object_{begin}") if x in self.functions), None)
            if target is None and doc is None:
                target = self.followed(body, bodies)
            option_form = self.functions.get(f"{name}_with")
            if option_form and name in self.functions:      # wb_mse, also a function value
                option_form.plain, target = self.functions[name], option_form
            if target is not None and (doc is None or target.name == name or
                                       not doc[0].startswith("wb_keep")):
                target.macros.append((name, parameters, doc))
                group = None
                continue
            if group is not None and group.doc is doc:
                group.others.append((name, parameters))
            else:
                group = Entry("macro", name, parameters, doc)
                kept.append(("entry", group))
        items[:] = kept

    def followed(self, body, bodies, depth=0):
        """The entry of the function that a macro calls, also through other macros."""
        for word in re.findall(r"\b(?:wb|WB)_\w+", body):
            if word in self.functions and self.functions[word].kind == "function":
                return self.functions[word]
            if word in bodies and depth < 4:
                found = self.followed(bodies[word], bodies, depth + 1)
                if found:
                    return found
        return None

    def options_of(self, entry):
        """The struct of a function's options, as an Entry; None if it takes none."""
        match = re.search(r"const (wb_\w+_options) \*o\b", entry.code)
        return self.functions.get(match.group(1)) if match else None

    def parameters(self, entry, name, written):
        """The parameters of a macro: those of the function, and the options given by place."""
        if written != "(...)":
            return written
        struct = self.options_of(entry)
        if not struct:
            return written
        inside = entry.code[entry.code.index("(") + 1:entry.code.rindex(")")]
        names = [re.search(r"(\w+)$", x.strip()).group(1) for x in inside.split(",")]
        names = [x for x in names if x not in ("o", "void")]
        names += [x[1] for x in options(struct.code) if x[4] and x[2] == "required"]
        return f"({', '.join(names + ['...'])})"

    def options(self, entry):
        struct = self.options_of(entry)
        if not struct:
            return ""
        names = ", ".join(literal(f".{x[1]}") for x in options(struct.code))
        return f"Options: {names}; see :c:struct:`{struct.name}`." if names else ""

    def example(self, names):
        for name in names:
            use = self.uses.get(name) or self.uses.get(name.removesuffix("_with"))
            if use:
                place, code = use
                return (f".. code-block:: c\n   :caption: {place}\n\n" + indented(code))
        return ""

    def function(self, entry):
        doc = prose(entry.doc or [])
        signature = entry.code
        parts = []
        plain = entry.plain
        macros = [x for x in entry.macros if x[0] != entry.name]
        for name, _, own in entry.macros:
            if own:
                doc += "\n\n" + prose(own)
        names = [x[0] for x in macros] + [entry.name]
        parts = [doc, self.options(entry), self.example(names)]
        if macros:
            heads = [f"{name}{self.parameters(entry, name, written)}"
                     for name, written, _ in macros]
            parts.append(f".. c:namespace:: NULL\n\n.. c:function:: {signature}\n\n"
                         "   The function of the macro.")
            head = ".. c:macro:: " + ("\n" + " " * 13).join(heads)
            if plain:
                head = f".. c:function:: {plain.code}"
        else:
            kind = "var" if entry.kind == "var" else "function"
            head = f".. c:{kind}:: {signature}"
        return head + "\n\n" + indented("\n\n".join(x for x in parts if x))

    def table(self, rows):
        lines = [".. list-table::", "   :header-rows: 1", "   :class: fields", ""]
        for row in rows:
            for i, cell in enumerate(row):
                lines.append(f"   {'* -' if i == 0 else '  -'} {cell}".rstrip())
        return "\n".join(lines)

    def struct(self, entry):
        parts = [prose(entry.doc or [])]
        if entry.kind == "options":
            rows = options(entry.code)
            table = [("Option", "Type", "Default", "Meaning")]
            for kind, name, default, text, place in rows:
                shown = default if default == "required" else literal(default)
                meaning = inline(text) + (" (also by place)" if place else "")
                table.append((literal(f".{name}"), literal(kind), shown, meaning.strip()))
        else:
            rows = members(entry.code)
            table = [("Field", "Type", "Meaning")]
            table += [(literal(name), literal(kind), inline(text)) for kind, name, text in rows]
        if rows:
            parts.append(self.table(table))
        parts.append(self.example([entry.name]))
        return f".. c:struct:: {entry.name}\n\n" + indented("\n\n".join(x for x in parts if x))

    def enum(self, entry, raw):
        rows = enumerators(entry.code, raw)
        body = "\n\n".join(f".. c:enumerator:: {name}" + (f"\n\n   {inline(text)}" if text else "")
                           for name, text in rows)
        doc = prose(entry.doc or [])
        if entry.name:
            return f".. c:enum:: {entry.name}\n\n" + indented(f"{doc}\n\n{body}")
        heads = ("\n" + " " * 18).join(name for name, _ in rows)
        return f".. c:enumerator:: {heads}\n\n" + indented(doc)

    def entry(self, entry, raw):
        if entry.kind in ("function", "var"):
            return self.function(entry)
        if entry.kind in ("struct", "options"):
            return self.struct(entry)
        if entry.kind == "enum":
            return self.enum(entry, raw)
        if entry.kind == "macro":
            heads = [f"{name}{parameters}" for name, parameters in
                     [(entry.name, entry.code), *entry.others]]
            names = [name for name, _ in [(entry.name, ""), *entry.others]]
            text = "\n\n".join(x for x in (prose(entry.doc or []), self.example(names)) if x)
            return ".. c:macro:: " + ("\n" + " " * 13).join(heads) + "\n\n" + indented(text)
        text = "\n\n".join(x for x in (prose(entry.doc or []), self.example([entry.name])) if x)
        return f".. c:type:: {entry.code or entry.name}\n\n" + indented(text)

    def page(self, path):
        head, items = self.read[path]
        raw = path.read_text()
        whole = re.sub(r"^Weber, chapter \d(, \w+ part)?: ", "", "\n".join(head))
        sentence = re.match(r"[^.]*", whole).group(0)
        title = " ".join(re.split(r"[:;]", sentence)[0].split())
        title = title[0].upper() + title[1:]
        rest = whole[len(sentence) + 1:].lstrip(" ")
        if ":" in sentence or ";" in sentence:
            rest = f"{sentence[0].upper()}{sentence[1:]}.  {rest}"
        text = [f".. _header-{path.stem}:", f"{title}\n{'=' * len(title)}",
                f"``#include <weber.h>`` (weber/{path.name})"]
        if rest.strip():
            text.append(prose(rest.split("\n")))
        for item in items:
            if item[0] == "section":
                name, _, more = item[1].partition("; ")
                name = name[0].upper() + name[1:]
                text.append(f"{escape(name)}\n{'-' * (len(name) + 4)}")
                if more:
                    more = more if more[1] == " " else f"{more[0].upper()}{more[1:]}"
                    text.append(inline(f"{more}."))
            elif item[0] == "prose":
                text.append(prose(item[1]))
            else:
                text.append(self.entry(item[1], raw))
        return "\n\n".join(text) + "\n"

    def index(self):
        head = comment_lines(re.match(r"/\*.*?\*/", (self.root / "include/weber.h").read_text(),
                                      re.S).group(0))
        text = "\n".join(head[head.index("Names"):])
        parts = re.split(r"^([A-Z][a-z ]+)\n(?=  )", text, flags=re.M)[1:]
        out = ["Reference\n=========",
               "The public header, ``weber.h``, by chapter.  The search field finds every name; "
               "the :ref:`genindex` lists them."]
        for title, body in zip(parts[::2], parts[1::2]):
            lines = [re.sub("^  ", "", x) for x in body.split("\n")]
            if title == "Names":
                lines = [f"  {x}" for x in lines]
            out.append(f"{title}\n{'-' * len(title)}")
            out.append(prose(lines))
        out.append("Chapters\n--------")
        toctree = "\n".join(f"   {path.stem}" for path in self.read)
        out.append(f".. toctree::\n   :maxdepth: 2\n\n{toctree}\n   cxx")
        return "\n\n".join(out) + "\n"

    def cxx(self):
        """The page of C++: the comments of the headers weber/cxx*.h."""
        out = ["C++\n===", "``#include <weber.h>`` (weber/cxx.h and the headers that it includes)"]
        for path in sorted((self.root / "include/weber").glob("cxx*.h")):
            text = path.read_text()
            comments = re.findall(r"/\*\*?(?! -).*?\*/", text, re.S)
            lines = comment_lines(comments[0])
            out += [f"{path.name}\n{'-' * len(path.name)}", prose(lines)]
            for match in re.finditer(r"/\*\*.*?\*/", text, re.S):
                out.append(prose(comment_lines(match.group(0))))
        return "\n\n".join(out) + "\n"

    def without(self):
        """The names of entries that have no text, and of functions that have no example."""
        entries = [item[1] for _, items in self.read.values() for item in items
                   if item[0] == "entry"]
        silent = [x.name for x in entries if not x.doc and not any(m[2] for m in x.macros)]
        plain = [x for x in self.functions.values() if x.kind == "function"]
        bare = [x.name for x in plain
                if not self.example([m[0] for m in x.macros] + [x.name])]
        return silent, bare

    def pages(self):
        found = {path.stem: self.page(path) for path in self.read}
        found["index"] = self.index()
        found["cxx"] = self.cxx()
        return found


# ---- examples ------------------------------------------------------------------------------------


def statement(lines, i, name):
    """The statement with a call of `name` in line i, as at most 5 lines; None if it is longer."""
    first = i
    while first > 0 and not re.search(r"[;{}:/]\s*$|^\s*$|^#", lines[first - 1]):
        first -= 1
        if i - first > 3:
            return None
    last = i
    while last < len(lines) and not re.search(r"[;{}]\s*(/\*.*\*/)?\s*$", lines[last]):
        last += 1
        if last - first > 4:
            return None
    if last >= len(lines):
        return None
    text = [re.sub(r" +/\*", "  /*", x) if x.lstrip()[:2] != "/*" else x
            for x in lines[first:last + 1]]
    width = min(len(x) - len(x.lstrip()) for x in text)
    text = "\n".join(x[width:] for x in text)
    checks = (r"\b(?!WB_)[A-Z][A-Z_]{2,}\(|\b(assert|expect|same|check)\w*\(|wrong|_fails|"
              r"^(case|else)\b")
    if re.search(checks, text) or "*/" in text and "/*" not in text:
        return None                     # a check of a test is no example
    begin = r"[\w *\[\]+]+ = |wb_|WB_|if \(|for \(|static|return wb_|printf\("
    return text if re.match(begin, text) else None


def uses(root, names, sources):
    """{name: (place, code)}: a short statement with each name, from the first source that has one.

    `sources` are lists of files, the best first; all of them are compiled and run by the tests."""
    found = {}
    for files in sources:
        best = {}
        for path in files:
            lines = path.read_text(errors="replace").split("\n")
            place = path.relative_to(root).as_posix()
            for i, line in enumerate(lines):
                for name in set(re.findall(rf"\b{NAME}\b", line)):
                    if name not in names or name in found or re.match(r"\s*(\*|/\*|//)", line):
                        continue
                    code = statement(lines, i, name)
                    if code is None or len(max(code.split("\n"), key=len)) > 96:
                        continue
                    called = re.search(rf"\b{name}\(", code) or name.startswith("WB_")
                    score = (not called, not re.search(rf"= {name}\(", code),
                             code.count("\n") > 2, "static" in code, abs(len(code) - 60))
                    if name not in best or score < best[name][0]:
                        best[name] = (score, place, code)
        found.update({name: (place, code) for name, (_, place, code) in best.items()})
    return found


def sources(root):
    examples = sorted((root / "examples").glob("*.c"))
    tests = [path for path in sorted((root / "tests").rglob("*.c"))
             if not re.search(r"/(doubles|minimal|fuzz|graphs)/", path.as_posix())]
    return [[root / "docs/site/examples.c"], examples, tests]


def make(root):
    """(pages, names, number of names with an example)"""
    root = Path(root)
    names = public_names(root)
    reference = Reference(root, uses(root, names, sources(root)))
    return reference.pages(), names, reference


def main():
    """Prints what the reference lacks: entries, texts, examples.  The exit status is 1 if any."""
    root = sys.argv[1] if sys.argv[1:] else Path(__file__).resolve().parent.parent
    texts, names, made = make(root)
    heads = re.findall(r"^ *\.\. c:\w+:: .*(?:\n {13,}\S.*)*", "\n".join(texts.values()), re.M)
    entries = set(re.findall(rf"\b{NAME}\b", "\n".join(heads)))
    missing = sorted(set(names) - entries)
    for name in missing:
        print(f"include/weber/{names[name]}: {name} has no entry in the reference")
    silent, bare = made.without()
    for name in silent:
        print(f"{name}: its entry has no text")
    for name in bare:
        print(f"{name}: no example; docs/site/examples.c has those that no program has")
    print(f"{len(names) - len(missing)} of {len(names)} public names have an entry")
    return 1 if missing or silent or bare or not names else 0


if __name__ == "__main__":
    sys.exit(main())
