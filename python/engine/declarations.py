# SPDX-License-Identifier: Apache-2.0
"""Reads what a header of Weft declares: functions, structs, enumerations and classes, with their comments. The headers are written
in one style (docs of clang-format aside), so this is a reader of that style, not of C++."""
import dataclasses
import pathlib
import re


@dataclasses.dataclass
class Parameter:
    type: str
    name: str
    default: str = None


@dataclasses.dataclass
class Function:
    result: str
    name: str
    parameters: list
    comment: str


@dataclasses.dataclass
class Group:
    """A struct or a class: its public part. Members are parameters, in their order."""
    name: str
    base: str
    comment: str
    members: list
    functions: list


@dataclasses.dataclass
class Choice:
    """An enumeration."""
    name: str
    names: list


_opening, _closing = "([{<", ")]}>"


def _split(text, at=","):
    """At commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in _opening) - (c in _closing and text[i - 1:i + 1] != "->")
        if c == at and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [part.strip() for part in (*parts, text[begin:]) if part.strip()]


def _end_of_block(text, begin):
    """Of the block that begins there with a brace: the place after its end."""
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i + 1
    raise ValueError(f"a block has no end: {text[begin:begin + 60]}")


def _without_body_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def _statements(text):
    """Each with the comment before it or on its line, and with its block, if it has one that is not an initial value."""
    at, comment = 0, []
    while at < len(text):
        line, _, _ = text[at:].partition("\n")
        if not line.strip():
            comment = []
            at += len(line) + 1
            continue
        if line.lstrip().startswith("//"):
            comment.append(line.strip()[2:].strip())
            at += len(line) + 1
            continue
        end, depth, block = at, 0, None
        while text[end] != ";" or depth:
            if text.startswith("//", end):
                end = text.index("\n", end)
                continue
            if text[end] == "{" and depth == 0 and text[:end].rstrip()[-1] != "=":
                after = _end_of_block(text, end)
                block = text[end + 1:after - 1]
                break
            depth += (text[end] in "([{") - (text[end] in ")]}")
            end += 1
        head = " ".join(_without_body_comments(text[at:end]).split())
        at = after if block is not None else end + 1
        if block is not None and text[at:at + 1] == ";":
            at += 1
        rest, _, _ = text[at:].partition("\n")
        if rest.strip().startswith("//"):
            comment = [*comment, rest.strip()[2:].strip()]
            at += len(rest) + 1
        yield head, block, "\n".join(comment)
        if rest.strip() and not rest.strip().startswith("//"):
            continue  # a second statement on this line has the same comment
        after_line = text[at:].lstrip(" ")
        if after_line.startswith("\n"):
            at += text[at:].index("\n") + 1
        comment = []


def _parameter(text):
    declaration, _, default = (part.strip() for part in text.partition("="))
    match = re.fullmatch(r"(.*[\s&*>])(\w+)", declaration)
    kind, name = match.groups() if match else (declaration, "")
    return Parameter(kind.strip(), name, default or None)


_function = re.compile(r"(?:(?:static|inline|explicit|virtual|constexpr) )*(?P<result>[\w:<>,&* ]*?)\s*(?P<name>operator\(\)|~?\w+)\((?P<parameters>.*)\)"
                       r"(?: const)?(?: override)?(?: :.*)?")


def _function_of(head, comment):
    match = _function.fullmatch(head)
    if not match or "template" in head or "operator" in head and "operator()" not in head:
        return None
    parameters = [_parameter(text) for text in _split(match["parameters"])]
    return Function(match["result"].strip(), match["name"], parameters, comment)


def _members_of(head):
    """Of `int64_t dim, codes = 2`: two."""
    first, *others = _split(head)
    members = [_parameter(first)]
    return members + [_parameter(f"{members[0].type} {other}") for other in others]


def _group_of(head, block, comment):
    match = re.fullmatch(r"(?:struct|class) (\w+)(?: final)?(?: : (?:public )?(\w+))?", head)
    public = re.split(r"\n *(?:private|protected):", re.sub(r"^\s*public:", "", block))[0]
    group = Group(match[1], match[2], comment, [], [])
    for inner, inner_block, told in _statements(public):
        if "(" in inner.split("=")[0]:
            function = _function_of(inner, told)
            group.functions += [function] if function else []
        elif inner_block is None and not re.match(r"using|friend|static|template|~|struct|class|explicit|enum", inner) and "operator" not in inner:
            group.members += _members_of(inner)
    return group


def declared_in(path):
    """What a header declares, in its order, and the comment at its beginning."""
    text = pathlib.Path(path).read_text()
    top, _, body = text.partition("namespace weft {\n")
    about = "\n".join(line[2:].strip() for line in top.splitlines()[1:] if line.startswith("//"))
    body = body.rpartition("}  // namespace weft")[0]
    found = []
    for head, block, comment in _statements(body):
        if head.startswith("enum class"):
            names = [re.match(r"\w+", name)[0] for name in _split(_without_body_comments(block))]
            found.append(Choice(head.split()[2], names))
        elif re.match(r"(?:struct|class) \w+", head):
            if block is not None:
                found.append(_group_of(head, block, comment))
        elif not head.startswith(("template", "using", "namespace")):
            function = _function_of(head, comment)
            if function and function.result:
                found.append(function)
    return found, about
