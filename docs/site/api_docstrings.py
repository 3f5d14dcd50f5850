"""Docstrings as they stand in the package, into Markdown for the reference: an extension of griffe.

They are in numpy's style, but say what a parameter is behind its colon, since its type is in the signature; and they
name other things by reStructuredText's roles. Settings say what they are in their annotations.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

TITLE = re.compile(r"(?:^|\n)([A-Z][A-Za-z ]+)\n-{4,}\n")
ITEM = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) :\s+", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc|obj):`(~?)([\w.]+)`")
PAGE = re.compile(r"(?<![\w/])(`{0,2})docs/((?:[\w-]+/)*([\w-]+))\.md\1")


def markdown_of(docstring: str, owner: str = "") -> str:
    """Return a docstring's Markdown; names of ``owner``'s own members become links too."""
    head, *rest = TITLE.split(docstring)
    text = head.rstrip()
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        text += f"\n\n**{title}**\n\n{_code(body) if title == 'Example' else _items(body)}"
    text = ROLE.sub(lambda role: _link(role.group(2), bool(role.group(1)), owner), text)
    text = PAGE.sub(r'<a href="../\2.html">\3</a>', text)
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


def _code(body: str) -> str:
    """Return an example without its prompts, as a block of code."""
    return "```python\n" + re.sub(r"^(?:>>>|\.\.\.) ?", "", body.strip("\n"), flags=re.MULTILINE) + "\n```"


def _items(body: str) -> str:
    """Return a section as a list, with what follows it as paragraphs."""
    lines = []
    for line in body.strip("\n").split("\n"):
        item = ITEM.match(line)
        lines.append(f"- `{item.group(1)}`: {line[item.end() :]}" if item else line)
    return re.sub(r"\n\n(?=\S)(?!- )", "\n\n<!-- -->\n\n", "\n".join(lines))


def _link(name: str, last_alone: bool, owner: str) -> str:
    shown = name.rpartition(".")[2] if last_alone else name
    target = name if name.startswith("shieldfl") else f"{owner}.{name}"
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'


def _inherit_docstrings(obj: griffe.Object) -> None:
    """Give classes and their members that say nothing what the nearest base says of them, as help() does."""
    for member in obj.members.values():
        if member.is_alias or not (member.is_module or member.is_class):
            continue
        if member.is_class:
            for base in member.mro():
                member.docstring = member.docstring or base.docstring
                for name, own in member.members.items():
                    if not own.is_alias and not own.docstring and name in base.members:
                        own.docstring = base.members[name].docstring
        _inherit_docstrings(member)


def _about(annotation: ast.expr | None) -> tuple[str, ast.expr] | None:
    """Return what ``Annotated[type, about("...")]`` says, and the type."""
    if not (isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") == "Annotated"):
        return None
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    for part in parts:
        if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "about":
            return str(ast.literal_eval(part.args[0])), parts[0]
    return None


class HouseDocstrings(griffe.Extension):
    """Rewrites docstrings while the package is read."""

    def on_instance(self, *, node: Any, obj: griffe.Object, **_: Any) -> None:
        """Make Markdown of a docstring."""
        if obj.docstring:
            owner = obj.parent if obj.is_function or obj.is_attribute else obj
            obj.docstring.value = markdown_of(obj.docstring.value, owner.path if owner else "")

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Fill in what is inherited, once all bases are known."""
        _inherit_docstrings(pkg)

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Take a setting's text for its docstring, and leave its type alone as its annotation."""
        said = _about(node.annotation) if isinstance(node, ast.AnnAssign) else None
        if said:
            attr.docstring = griffe.Docstring(said[0], parent=attr, lineno=node.lineno)
            attr.annotation = ast.unparse(said[1])
