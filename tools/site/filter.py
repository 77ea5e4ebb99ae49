# SPDX-License-Identifier: MIT
"""What Doxygen reads instead of the project's files, which stay as they are.

Markdown of code-hosting sites: links between lessons become references, links into the tree become
links to the example's page or plain text, and headings get labels, so that the anchors which those
sites make by themselves work here too.

Headers: a lesson's name becomes a link to it, and what names none is linked to the lesson that the
file names first.
"""
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
from lab import ladder  # noqa: E402
from lab.commands import docs  # noqa: E402
from lab.pages.headings import slug  # noqa: E402

LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^)\s]+)\)")
# For tools/site/find.js, on the first page and on the index of the lessons.
FIND = r"""
\htmlonly
<p><label>Find a verb, an error message or any word:
<input id="find" type="search" placeholder="RNR"/></label></p>
<ul id="found"></ul>
<script src="find_data.js"></script><script src="find.js"></script>
\endhtmlonly
"""
# Doxygen prints the stars inside a link's text, and not those around the link.
EMPHASIS = re.compile(r"\[(\*{1,2})([^\[\]*]+)\1\](\([^)\s]+\))")
CODE = re.compile(r"(^```.*?^```$)", re.M | re.S)


def label(page: str, heading: str = "") -> str:
    """Labels are one name space for the whole site, so they begin with the page's name."""
    return "page_" + re.sub(r"\W", "_", page) + ("--" + heading if heading else "")


def page_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def example_page(path: Path) -> str:
    """The file name that Doxygen makes for an @example."""
    name = path.relative_to(ROOT / path.relative_to(ROOT).parts[0]).as_posix()
    return name.replace("/", "_2").replace(".", "_8") + "-example.html"


def link(match, here: Path) -> str:
    picture, text, target = match.groups()
    if picture:
        path = Path(target)  # its copy, by ./lab docs
        return f"![{text}]({path.parent.name}_{path.name})"
    if "://" in target:
        return match[0]
    file, _, anchor = target.partition("#")
    path = Path(os.path.normpath(here.parent / file)) if file else here
    if path.suffix == ".md" and path.parts[len(ROOT.parts)] not in ("examples", "tools"):
        if page_of(path) == "README":
            return f"[{text}](index.html)"
        return f"[{text}](#{label(page_of(path), anchor)})"
    has_pages = ("examples", "rdmacommon/src", "rdmashared/src")
    if path.suffix in docs.PAGES and any(
        path.is_relative_to(ROOT / folder) for folder in has_pages
    ):
        return f'<a href="{example_page(path)}">{text}</a>'
    if path.suffix == ".hpp":
        return f"[{text}](@ref {path.name})"
    # A folder or an example's README is not part of the site.
    return text


def quoted_from(marker: str) -> str:
    """The line behind a snippet that leads to its place in the source, on the source's page.

    @param marker <!-- snippet FILE TAG -->"""
    _, _, file, tag, _ = marker.split(" ")
    lines = (ROOT / file).read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.strip() == f"// [{tag}]") + 1
    address = f"{example_page(ROOT / file)}#l{number:05}"
    return f'<small><a href="{address}">{file}, line {number}</a></small>'


def filtered(text: str, here: Path) -> str:
    return header(text) if here.suffix == ".hpp" else markdown(text, here)


def header(text: str) -> str:
    """Line for line, so that Doxygen's warnings name the right ones."""
    stems = re.compile(r"\b(?:" + "|".join(lesson.stem for lesson in ladder.read()) + r")\b")
    introduced = stems.search(text)[0]
    lines, names_one = text.splitlines(), True  # the comment on the file does
    for i, line in enumerate(lines):
        if not line.lstrip().startswith("///") and "///<" not in line:
            names_one = False
            continue
        names_one = names_one or bool(stems.search(line))
        lines[i] = stems.sub(lambda stem: f'@ref {label("lessons/" + stem[0])} "{stem[0]}"', line)
        # The last line of a comment on something that gets a page or a place on one: not on a
        # member.
        if (
            re.match(r"\s*/// (?!@cond|@endcond)", line)
            and not names_one
            and re.match(r"\s+(class|struct) |[^/\s]", lines[i + 1])
        ):
            # Before an example at the comment's end, which would take it for code.
            last = i
            while lines[last].lstrip().startswith("///     "):
                last -= 1
            at = last - 1 if lines[last].strip() == "///" else i
            lines[at] += f' @see lesson @ref {label("lessons/" + introduced)} "{introduced}"'
    return "\n".join(lines) + "\n"


def with_whole_links(text: str) -> str:
    """Puts each link on one line: Doxygen prints the headings behind a divided link as text."""
    parts = CODE.split(text)
    parts[::2] = [LINK.sub(lambda match: match[0].replace("\n", " "), part) for part in parts[::2]]
    return "".join(parts)


def markdown(text: str, here: Path) -> str:
    page, in_code, out, source = page_of(here), False, [], ""
    for line in with_whole_links(text).splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            if line.startswith("<!-- snippet "):
                source = quoted_from(line)
            if line == "<!-- end -->" and source:
                out += ["", source]
                source = ""
            if line.startswith("<!--"):
                continue
            heading = re.match(r"(#+) (.*)", line)
            # The README's other headings would stand in the tree, before the lessons.
            if heading and not (page == "README" and heading[1] != "#"):
                name = label(page) if heading[1] == "#" else label(page, slug(heading[2]))
                line = f"{line} {{#{name}}}"
            # In a code span, too, Doxygen takes :: for a name to link to.
            line = re.sub(
                r"`(::[^`]*)`", lambda code: f"<code>{code[1].replace(':', '&#58;')}</code>", line)
            line = EMPHASIS.sub(r"\1[\2]\3\1", line)
            line = LINK.sub(lambda match: link(match, here), line)
            if page == "lessons/README":  # the index is the lessons' parent in the tree of pages
                line = re.sub(r"\| \[[^\]]*\]\(#(page_lessons_\w+)\)", r"| @subpage \1", line)
        out.append(line)
        if page in ("README", "lessons/README") and not in_code and line.startswith("# "):
            out += FIND.splitlines()
    if page == "lessons/README":
        beside = "what_is_rdma", *ladder.BESIDE
        out += ["", *(f"- @subpage {label(f'lessons/{page}')}" for page in beside)]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    source = Path(sys.argv[1]).resolve()
    print(filtered(source.read_text(), source), end="")
