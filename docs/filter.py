"""Turns the Markdown of code-hosting sites into Doxygen's, on its way into Doxygen; the files stay as they are.

Links between lessons become references, links into the tree become links to the example's page or plain text, and
headings get labels, so that the anchors which those sites make by themselves work here too.
"""
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def slug(heading: str) -> str:
    """The anchor that code-hosting sites give a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).strip().replace(" ", "-")


def label(page: str, heading: str = "") -> str:
    """Labels are one name space for the whole site, so they begin with the page's name."""
    return "page_" + re.sub(r"\W", "_", page) + ("--" + heading if heading else "")


def page_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def example_page(path: Path) -> str:
    """The file name that Doxygen makes for an @example."""
    name = path.relative_to(ROOT / "examples").as_posix()
    return name.replace("/", "_2").replace(".", "_8") + "-example.html"


def link(match, here: Path) -> str:
    picture, text, target = match.groups()
    if picture:
        return f"![{text}]({Path(target).name})"
    if "://" in target:
        return match[0]
    file, _, anchor = target.partition("#")
    path = Path(os.path.normpath(here.parent / file)) if file else here
    if path.suffix == ".md":
        if page_of(path) == "README":
            return f"[{text}](index.html)"
        return f"[{text}](#{label(page_of(path), anchor)})"
    if path.is_relative_to(ROOT / "examples") and path.suffix in (".cpp", ".hpp"):
        return f'<a href="{example_page(path)}">{text}</a>'
    if path.suffix == ".hpp":
        return f"[{text}](@ref {path.name})"
    return text  # a folder, a patch, a source of the library: not part of the site


def filtered(text: str, here: Path) -> str:
    page, in_code, out = page_of(here), False, []
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            if line.startswith("<!--"):
                continue
            heading = re.match(r"(#+) (.*)", line)
            if heading:
                name = label(page) if heading[1] == "#" else label(page, slug(heading[2]))
                line = f"{line} {{#{name}}}"
            # In a code span, too, Doxygen takes :: for a name to link to.
            line = re.sub(r"`(::[^`]*)`", lambda code: f"<code>{code[1].replace(':', '&#58;')}</code>", line)
            line = LINK.sub(lambda match: link(match, here), line)
            if page == "lessons/README":  # the index is the lessons' parent in the tree of pages
                line = re.sub(r"\| \[[^\]]*\]\(#(page_lessons_\w+)\)", r"| @subpage \1", line)
        out.append(line)
    if page == "lessons/README":
        out += ["", *(f"- @subpage {label(f'lessons/{page}')}" for page in ("reading_a_packet", "troubleshooting"))]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    source = Path(sys.argv[1]).resolve()
    print(filtered(source.read_text(), source), end="")
