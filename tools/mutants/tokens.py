# SPDX-License-Identifier: Apache-2.0
"""Mistakes of one token, which nobody has thought of: every place of a C++ text where there can be one."""
import dataclasses
import re

exchanged = [("==", "!="), ("<", "<="), (">", ">="), ("&&", "||"), ("+", "-"), ("*", "/"), ("+=", "-="), ("*=", "/="),
             ("++", "--"), ("0", "1"), ("true", "false"), ("min", "max"), ("minimum", "maximum"), ("begin", "end"),
             ("first", "last")]
instead = dict(exchanged) | {right: left for left, right in exchanged}

# Comments, texts, and code that chooses types: not compiled, not executed, or the same with a mistake.
ignored = re.compile(r"""
    //.* | /\*[\s\S]*?\*/ | R"\((?:[\s\S]*?)\)" | "(?:\\.|[^"\\\n])*" | (?<!\w)'(?:\\.|[^'\\\n])+'
  | ^[ ]*\#.* | \btemplate[ ]<.*>(?=\s) | \b(?:static_assert|using|typedef)\b[^;]*; | \)(?:[ ]const)?[ ]=[ ]0;
  """, re.M | re.X)

# The formatter puts spaces around operators with two operands, and none around the brackets of a template, after a
# pointer's * or around a reference's &&.
token = re.compile(r"""
    (?<=[ ])(?:==|!=|<=|>=|[<>]|&&|\|\||\+=|-=|\*=|/=|[-+*/])(?=\s) | \+\+ | --
  | (?<![\w.'])[01](?![\w.']) | \b(?:true|false|min|max|minimum|maximum|begin|end|first|last)\b
  | !(?=[\w(]) | \breturn[ ](?!true;|false;|!)(?P<value>[^;{}]+);
  """, re.X)


@dataclasses.dataclass(frozen=True)
class Mistake:
    file: str
    line: int
    column: int
    begin: int  # in characters from the start of the file
    old: str
    new: str

    def __str__(self):
        return f"{self.file}:{self.line}:{self.column}: {' '.join(self.old.split())} -> {' '.join(self.new.split()) or 'nothing'}"

    def planted_in(self, text):
        assert text[self.begin:].startswith(self.old)
        return text[:self.begin] + self.new + text[self.begin + len(self.old):]


def mistakes_in(file, text):
    code = ignored.sub(lambda found: re.sub(r"\S", "~", found[0]), text)
    at = 0
    while found := token.search(code, at):
        old, at = text[found.start():found.end()], found.end()
        if found["value"]:  # which may have mistakes of its own
            at, new = found.start("value"), f"return !({text[found.start('value'):found.end('value')]});"
        else:
            new = "" if old == "!" else instead[old]
        begin = found.start()
        line, column = text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin)
        yield Mistake(file, line, column, begin, old, new)
