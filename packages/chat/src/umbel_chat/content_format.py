"""The form in which a chat template wants the content of messages.

Rendering processes import this module, so it imports nothing but jinja2.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from jinja2 import nodes

ContentFormat: TypeAlias = Literal["string", "openai"]
"""Whether a template takes content as one string, or as a list of parts like the API's."""


def detect_content_format(template: nodes.Template) -> ContentFormat:
    """Tell from a parsed chat template which content format it was written for.

    It is "openai" when the template has a loop over the content of a message: over an attribute
    `content` of what a loop over the messages yields, over a variable called `content`, or over a
    parameter of a macro that is called with such an attribute.  The rule is that of
    vllm/renderers/hf.py (_detect_content_format).
    """
    messages = _aliases(template, ("messages",))
    contents = {
        (*variable, "content") for variable, source in _loops(template) if source in messages
    }
    in_macros: set[int] = set()
    for macro in template.find_all(nodes.Macro):
        in_macros.update(id(loop) for loop in macro.find_all(nodes.For))
        parameters = _parameters_bound_to(macro, template, contents)
        if any(source in parameters for _, source in _loops(macro, plain=True)):
            return "openai"
    outside = (loop for loop in template.find_all(nodes.For) if id(loop) not in in_macros)
    if any(_is_name(loop.iter, "content") for loop in outside):
        return "openai"
    return "openai" if any(source in contents for _, source in _loops(template)) else "string"


VariablePath: TypeAlias = tuple[str, ...]
"""A variable and attributes of it: `ns.rest` is ("ns", "rest")."""


def _path(node: nodes.Node | None) -> VariablePath | None:
    """Give the variable path that an expression reads, seen through filters, tests and slices."""
    while isinstance(node, (nodes.Filter, nodes.Test)) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return _plain_path(node)


def _plain_path(node: nodes.Node | None) -> VariablePath | None:
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.NSRef):
        return (node.name, node.attr)
    if isinstance(node, nodes.Getattr):
        attribute = node.attr
    elif (
        isinstance(node, nodes.Getitem)
        and isinstance(node.arg, nodes.Const)
        and isinstance(node.arg.value, str)
    ):
        attribute = node.arg.value
    else:
        return None
    base = _plain_path(node.node)
    return None if base is None else (*base, attribute)


def _is_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name


def _loops(
    root: nodes.Node, plain: bool = False
) -> Iterator[tuple[VariablePath, VariablePath | None]]:
    """Iterate over the loops with one variable: that variable, and what they loop over."""
    for loop in root.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name):
            source = _plain_path(loop.iter) if plain else _path(loop.iter)
            yield (loop.target.name,), source


def _assignments(root: nodes.Node) -> Iterator[tuple[VariablePath, VariablePath]]:
    """Iterate over the assignments of a variable path to another."""
    for assignment in root.find_all(nodes.Assign):
        target = _plain_path(assignment.target)
        if target is None:
            continue
        value = assignment.node
        if isinstance(value, nodes.Call) and _is_name(value.node, "namespace"):
            for keyword in value.kwargs:
                if (source := _path(keyword.value)) is not None:
                    yield (*target, keyword.key), source
        elif (source := _path(value)) is not None:
            yield target, source


def _aliases(root: nodes.Node, start: VariablePath) -> set[VariablePath]:
    """Find all variable paths that the value of one may have been assigned to."""
    assignments = list(_assignments(root))
    found = {start}
    while added := {target for target, source in assignments if source in found} - found:
        found |= added
    return found


def _parameters_bound_to(
    macro: nodes.Macro, root: nodes.Node, paths: set[VariablePath]
) -> set[VariablePath]:
    """Find the parameters of a macro that some call binds to one of the paths."""
    names = [argument.name for argument in macro.args]
    bound: set[VariablePath] = set()
    for call in root.find_all(nodes.Call):
        if not _is_name(call.node, macro.name):
            continue
        arguments = list(zip(names, call.args, strict=False))
        arguments += [(keyword.key, keyword.value) for keyword in call.kwargs]
        bound |= {(name,) for name, value in arguments if name in names and _path(value) in paths}
    return bound
