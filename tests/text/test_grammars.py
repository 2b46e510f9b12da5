"""What an engine can bear of regular expressions and grammars, and that finding out is quick.

What is refused here was seen to kill an engine with xgrammar 0.2.8, or to keep it from its other
requests for seconds at every step.
"""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .constraints import refusal

MOST_CALLS = 1_500_000
"""Calls of functions that checking one constraint may take; it is about half a second."""


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "^abc$",
        r"\d{4}-\d{2}-\d{2}",
        r"(\d{1,3}\.){3}\d{1,3}",
        r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$",
        r"https?://(www\.)?[-a-zA-Z0-9@:%._+~#=]{1,256}\.[a-z]{1,6}([-a-zA-Z0-9()@:%_+.~#?&/=]*)",
        r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?",
        r"M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})",
        r"([01]?\d|2[0-3]):[0-5]\d",
        r"(\+\d{1,3}[- ]?)?\(?\d{3}\)?[- ]?\d{3}[- ]?\d{4}",
        r"([a-z]+ ){1,100}",
        r"(\w+\s*)*",
        r"(\w+\s?)+\.",
        r"(\w+[ ,]?){1,10}",
        r"((\w+ )*\w+\.\s?)+",
        r"(\w+(, \w+)*)?",
        r"(- [^\n]{1,100}\n){1,20}",
        r"([^,\n]*,){3}[^,\n]*(\n([^,\n]*,){3}[^,\n]*){0,100}",
        r"<think>[\s\S]*</think>\s*(yes|no)",
        r"(foo|foobar|baz)+",
        r"(a|\\(n|\\))+",
        r".{0,1000}",
        r"[a-z]{1,1000000000}",
        "(?:" * 100 + "a" + ")" * 100,
        "|".join(rf"\d+ kinds of {number}" for number in range(300)),
        r"(?<year>\d{4})",
        r"\cA\x41\u0041\u{1F600}\/\-[\]\-\\]",
        "学[字-語]?",
        r"((\w+)*)*",
        r"([\da-z.-]+)\.([a-z.]{2,6})([\/\w .-]*)*\/?",
        r"([^.!?]+[.!?] ?){1,5}",
        r"(.*\n){5}",
        r"(.+\n\n){1,5}",
        r"(.*,){4}.*",
        r".{1,80}\n.{1,80}\n.{1,80}",
        r"(.{1,80}\n){1,14}",
        r"([*-] .{1,200}\n){1,20}",
        r"(- [^\n]+\n?){1,20}",
        r"(\d+,? ?){1,50}",
        r"\S+(\s\S+){4,99}",
        r".{1,100}(, .{1,100}){0,5}\.",
        r"(<item><name>[^<]*</name>(<tag>[^<]*</tag>)*</item>\n)+",
        r"(<p>([^<]|<b>[^<]*</b>)*</p>)+",
        r"(?:[^<]|<[^|]){0,4096}",
        "|".join(rf"(\w+ ?)+{number}" for number in range(20)),
    ],
)
def test_a_regex_of_daily_use_passes(pattern: str) -> None:
    assert refusal(regex=pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\w+\s*){1,1000}",
        r"([a-z]{1,100}){1,100}",
        r"(([a-z]{1,10}){1,10}){1,10}",
        r"(a?){1000}",
        r"((\w+ ?)*,?)*",
        r"(([a-z])?)*!",
        r"((.)?)+[a-c]",
        r"([^,]*){0,9}foo",
        r"(\w|\w\w){1,300}",
        r"([a-z]{2}|[a-z]{3}){1,300}",
        r"(.{1,20})+",
        "[a-z]?" * 100,
        "." * 16_000,
        "(?<\U0010ffff>a)",
        "(?<aé>a)",
        "\\c\U0010ffff",
        "[\\c\u4e00]",
    ],
)
def test_a_regex_that_would_harm_the_engine_is_refused(pattern: str) -> None:
    assert (refusal(regex=pattern) or "").startswith("structured_outputs.regex cannot be served: ")


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("(?<a1>b)", "Invalid named capturing group."),
        ("\\c1", "Invalid control character escape sequence."),
        ("\\u{110000}", "Invalid Unicode escape sequence."),
        ("\\xffffffffffffffffff", "Invalid Unicode escape sequence."),
        ("\\", "Escape sequence is not finished."),
        ("\\u12", "Escape sequence is not finished."),
        ("(", "The parenthesis is not closed."),
        (")", "Unmatched ')'"),
        ("[a", "Unclosed '['"),
        ("[]", "Empty character class is not allowed in regex."),
        ("[z-a]", "lower bound is larger than upper bound"),
        ("(?", "Group modifier is not finished."),
        ("(?i)a", "Group modifier flag is not supported yet."),
        ("(?!a)", "Lookahead is not supported yet."),
        ("(?<!a)", "Lookbehind is not supported yet."),
        (r"(a)\1", "Backreference is not supported yet."),
        (r"\bfoo", "Word boundary is not supported yet."),
        (r"\p{L}", "Unicode character class escape sequence is not supported yet."),
        ("a**", "Two consecutive repetition modifiers are not allowed."),
        ("a{,3}", "Invalid repetition count."),
        ("a{3,1}", "Lower bound is larger than upper bound: 3 > 1"),
        ("a{4294967296}", "too large"),
        ("*a", "nothing to repeat"),
        ("a|+", "nothing to repeat"),
        ("(" * 300, "nested deeper"),
    ],
)
def test_a_regex_that_is_none_is_refused(pattern: str, complaint: str) -> None:
    got = refusal(regex=pattern) or ""
    assert got.startswith("Failed to transform regex into a grammar: ")
    assert complaint in got


JSON_GRAMMAR = r"""
# JSON, as it stands in many examples
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair (ws "," ws pair)*)? ws "}"
pair ::= string ws ":" ws value
array ::= "[" ws (value (ws "," ws value)*)? ws "]"
string ::= "\"" ([^"\\\n] | "\\" ["\\/bfnrt] | "\\u" [0-9a-fA-F]{4})* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
ws ::= [ \t\n]*
"""

SQL_GRAMMAR = r"""
root ::= select_statement
select_statement ::= "SELECT " column_list " from " table (" where " condition)?
column_list ::= column (", " column)*
column ::= "username" | "email" | [a-z_]+
table ::= [a-z_]+
condition ::= column " = " number ((" and " | " or ") condition)?
number ::= [0-9]+
"""

PRECEDENCE_GRAMMAR = r"""
root ::= e0
e0 ::= e1 (" A " e1)*
e1 ::= e2 (" B " e2)*
e2 ::= e3 (" C " e3)*
e3 ::= [0-9]+ | "(" e0 ")"
"""

STATEMENTS_GRAMMAR = r"""
root ::= declaration*
declaration ::= type identifier "(" (type identifier)? ")" "{" statement* "}"
type ::= ("int" | "float" | "char") ws
identifier ::= [a-zA-Z_] [a-zA-Z_0-9]*
statement ::=
    type identifier ws "=" ws expression ";" |
    identifier ws "=" ws expression ";" |
    identifier ws "(" arguments? ")" ";" |
    "while" "(" expression ")" "{" statement* "}" |
    "if" "(" expression ")" "{" statement* "}" ("else" "{" statement* "}")? |
    "/*" ([^*] | "*" [^/])* "*/"
expression ::= term (("+" | "-") term)*
term ::= factor (("*" | "/") factor)*
factor ::= identifier | [0-9]+ | "-" factor | identifier "(" arguments? ")" | "(" expression ")"
arguments ::= expression ("," ws expression)*
ws ::= [ \t\n]+
"""

MARKUP_GRAMMAR = r"""
root ::= "<html>" node* "</html>"
node ::= element | [^<]+
element ::= "<" tag attributes ">" node* "</" tag ">" | "<br/>"
tag ::= "div" | "p" | "h1"
attributes ::= (" " [a-z]+ "=" "\"" [^"]* "\"")*
"""

PRINTED_SCHEMA_GRAMMAR = r"""
escape ::= (["\\/bfnrt]) | ("u" [A-Fa-f0-9] [A-Fa-f0-9] [A-Fa-f0-9] [A-Fa-f0-9])
string_rest ::= (("\"") | ([^\0-\x1f\"\\\r\n] string_rest) | ("\\" escape string_rest)) (=([ \n\t]* [,}\]:]))
any ::= [0-9]+ | string | array | object
string ::= "\"" string_rest
array ::= ("[" [ \n\t]* any array_items{0, -1} [ \n\t]* "]") | ("[" [ \n\t]* "]")
array_items ::= [ \n\t]* "," [ \n\t]* any
object ::= "{" [ \n\t]* string [ \n\t]* ":" [ \n\t]* any object_items{0, -1} [ \n\t]* "}"
object_items ::= [ \n\t]* "," [ \n\t]* string [ \n\t]* ":" [ \n\t]* any
root ::= "{" [ \n\t]* "\"a\"" [ \n\t]* ":" [ \n\t]* any [ \n\t]* "}"
"""

TABLE_GRAMMAR = r"""
root ::= row+
row ::= cell ("," cell)* "\n"
cell ::= [^,"\n]* | "\"" ([^"] | "\"\"")* "\""
"""

PATCH_GRAMMAR = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: "*** Add File: " /(.+)/ LF add_line+ | "*** Update File: " /(.+)/ LF change?
add_line: "+" /(.*)/ LF -> line
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF
%import common.LF
"""

TURTLE_GRAMMAR = r"""
start: instruction+
instruction: "f" NUMBER | "c" COLOR [COLOR] | "fill" block | "repeat" NUMBER block
block: "{" instruction+ "}"
COLOR: LETTER+
%import common.LETTER
%import common.INT -> NUMBER
%import common.WS
%ignore WS
"""

LARK_GRAMMAR = r"""
%import common.NUMBER
%import common.WS
%ignore WS
?start: sum
?sum: product
    | sum "+" product -> add
    | sum "-" product
?product: atom ("*" atom)*
atom: NUMBER | "-" atom | "(" sum ")" | NAME ["." NAME] | /"[^"]*"/i | "x"~1..2
NAME: ("a".."z" | "_") /[a-z0-9_]*/
"""


def chain(length: int, last: str, body: str) -> str:
    lines = [f"r{index} ::= " + body.format(f"r{index + 1}") for index in range(length)]
    return "\n".join(["root ::= r0", *lines, f"r{length} ::= {last}"])


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "a"',
        'root\n::= "a"\n  | "b" # or this\n',
        JSON_GRAMMAR,
        SQL_GRAMMAR,
        LARK_GRAMMAR,
        PRECEDENCE_GRAMMAR,
        STATEMENTS_GRAMMAR,
        MARKUP_GRAMMAR,
        PRINTED_SCHEMA_GRAMMAR,
        TABLE_GRAMMAR,
        PATCH_GRAMMAR,
        TURTLE_GRAMMAR,
        'start: ""i "select"i',
        JSON_GRAMMAR.replace("root ::= value", 'root ::= (object "\\n")+'),
        JSON_GRAMMAR.replace(
            "root ::= value", 'root ::= ("<tool_call>" ws object ws "</tool_call>" ws)+'
        ),
        'root ::= s\ns ::= atom | "(" ws (s ws)* ")"\natom ::= [a-z]+\nws ::= [ \\n]*',
        'root ::= TagDispatch(excludes=("</think>")) "</think>" [0-9]+',
        'root ::= TagDispatch(("<a>", r), excludes=("</t>")) "</t>"\nr ::= "b"',
        "root ::= a b\na ::= root | [x]?\nb ::= [y]?",
        'root ::= "abc" | r\nr ::= "true" | r',
        'root ::= root "+" root | root "*" root | "(" root ")" | [0-9]+',
        'root ::= term (("+" | "-") term)*\nterm ::= "(" root ")" | [0-9]+ ("." [0-9]+)?',
        "root ::= root [a-z] | [a-z]",
        "root ::= [a-z] root | [a-z]",
        'root ::= "a" (="b")',
        'root[max_tokens=3] ::= "a"{2,} [^\\n\\u4e00-\\u4eff]{0,200} ()',
        'root ::= TagDispatch(("<a>", r), loop_after_dispatch=true)\nr ::= "b"',
        'root ::= Token(1) ExcludeToken(2, 3) Regex("a+b") Substring("abc")',
        chain(2000, '"b"', '"a" {0}'),
        chain(30, '"b"', "{0} {0}"),
        'start: "x" %json {"type": "integer"} <|im_end|>',
        'start: A\nA: "a"\n%grammar_options {"allow_initial_skip": true}',
    ],
    ids=lambda grammar: grammar[:30],
)
def test_a_grammar_of_daily_use_passes(grammar: str) -> None:
    assert refusal(grammar=grammar) is None


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= root",
        "root ::= root{2,}",
        "root ::= root{0}",
        'root ::= (root "")?',
        'root ::= "a"\nb ::= b{2}',
        "root ::= a{2}\na ::= root{3}",
        'root ::= root "a"',
        "root ::= root root | [a-z]",
        "root ::= (root)+ | [a-z]",
        "root ::= a{1,999}\na ::= b{1,999}\nb ::= [a-z]{1,999}",
        chain(30, "[a-z]?", "{0} {0}"),
        chain(3000, '"b"', "{0}"),
        "root ::= " + "[a-z]? " * 1000,
        'root ::= Regex("((a{100}){100}){100}")',
        'root[lazy] ::= "a"',
        "start: start?",
        "start: /(([a-z]{1,99}){1,99}){1,99}/",
        'start: %json {"type": "string", "pattern": "\\"(([a-z]{1,99}){1,99}){1,99}"}',
        "start: " + "%lark { start: " * 3000 + '"a"' + "}" * 3000,
        'start: %regex {"substring_chars": "abc"}',
        'start[stop="x"]: /.*/',
    ],
    ids=lambda grammar: grammar[:30],
)
def test_a_grammar_that_would_harm_the_engine_is_refused(grammar: str) -> None:
    assert (refusal(grammar=grammar) or "").startswith(
        "structured_outputs.grammar cannot be served: "
    )


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= ",
        'root ::= "a" |',
        'root ::= | "a"',
        'root ::= ("a"',
        'root ::= "a")',
        'root ::= "a"{',
        'root ::= "a"{2,1}',
        'root ::= "a" b ::= "c"',
        'root ::= "a"\nroot ::= "b"',
        '::= "a"',
        "root ::= 'a'",
        r'root ::= "\q"',
        r"root ::= [\d]",
        "root ::= [z-a]",
        "root ::= Token(1",
        'root ::= "a" \0',
        "(" * 50_000 + "::=",
        "start: /a",
        'start: "a"..',
        'start: "ab".."c"',
        "start: (a\n)b",
        'start: "a" ~ 2..1',
        "start: A\nA: A2",
        "%import other.THING\nstart: THING",
        "start: /a/x",
        "start: %json {",
        "start: %json " + "[" * 5000,
        "start: @other",
    ],
    ids=lambda grammar: grammar[:30],
)
def test_a_grammar_that_is_none_is_refused(grammar: str) -> None:
    assert refusal(grammar=grammar) == "Invalid grammar specification."


def levels(count: int, last: str) -> str:
    lines = [f'e{index} ::= e{index + 1} ("{index}" e{index + 1})*' for index in range(count)]
    return "\n".join(["root ::= e0", *lines, f"e{count} ::= {last}", "a ::= [^x]"])


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "(.|.)" * 3200},
        {"regex": "a?" * 8000},
        {"regex": "(?:" * 199 + "a" * 15_000 + ")" * 199},
        {"regex": "|".join(f"[^{sign}]x" for sign in "abcdefghij" * 230)},
        {"grammar": levels(9, '"y" | ' + "(a|a)" * 1000 + ' "(" e0 ")"')},
        {"grammar": 'root ::= "b" | ' + "([^a]|[^b])" * 4600 + " root"},
        {"grammar": "root ::= " + '"a" root | ' * 5900 + '"b"'},
        {"grammar": "root ::= " + " | ".join(f'"{"a" * size}"' for size in range(1, 350))},
        {"grammar": chain(1900, '"b"', '{0} {0} | "c"')},
        {"json": {"anyOf": [{"pattern": f"{index}é" + "(a|b)" * 50} for index in range(100)]}},
        {"json": '{"pattern": "\\\\{' + "9" * 5000 + '}"}'},
        {"grammar": 'start: %json {"pattern": "\\\\{' + "9" * 5000 + '}"}'},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_no_text_takes_long_to_check(fields: dict[str, object]) -> None:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        refusal(**fields)
    finally:
        sys.setprofile(None)
    assert calls < MOST_CALLS


SIGNS = st.sampled_from([*"ab01 (){}[]|*+?.,^$\\/\"':=<>~#%-_\n", "::=", "root", "start:"])
WORDS = st.sampled_from(["{1,3}", "[a-z]", "(?:", '"a"', "%json ", "%ignore ", "é", "\U0010ffff"])


@given(text=st.lists(SIGNS | WORDS, max_size=30).map("".join))
def test_any_text_is_either_taken_or_refused(text: str) -> None:
    for fields in (
        {"regex": text},
        {"grammar": f"root ::= {text}"},
        {"grammar": f"start: {text}"},
        {"grammar": f'root ::= "a" | {text} root'},
        {"json": {"type": "string", "pattern": text}},
        {"json": {"examples": [{"pattern": text}], "$ref": "#/examples/0"}},
    ):
        refusal(**fields)
