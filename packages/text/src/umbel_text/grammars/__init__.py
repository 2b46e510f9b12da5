"""Reads of grammars what the engine's compiler must be spared: constraints that it cannot bear.

xgrammar parses with Earley's algorithm, in the engine's main loop: a constraint that a text can match
in many ways makes every step of every request wait.  `forms` estimates that; `regex`, `ebnf`, `lark`,
`schemas` and `tags` read the languages that constraints are written in.
"""
