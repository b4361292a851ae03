"""Settings of Sphinx.  tools/docs.py puts this folder, the pages of docs/ and the reference that it
makes of the headers into one folder, build/docs-source, and runs Sphinx there."""
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

project = "Weber"
html_title = "Weber"
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_last_updated_fmt = None
pygments_style = "friendly"
pygments_dark_style = "monokai"
highlight_language = "none"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
smartquotes = False
c_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
copybutton_exclude = ".linenos, .gp"
copybutton_selector = "div:not(.output) > div.highlight > pre"


class Names(SphinxTransform):
    """Each literal that begins with a public name, `wb_sum(x, 1)`, is a link to its entry."""
    default_priority = 5

    def apply(self, **_):
        for literal in list(self.document.findall(nodes.literal)):
            match = re.match(r"((?:wb|WB)_\w+)\b(?!\*)", literal.astext())
            parents = (nodes.reference, nodes.title, addnodes.pending_xref)
            if not match or isinstance(literal.parent, parents):
                continue
            link = addnodes.pending_xref(
                "", refdomain="c", reftype="any", reftarget=match.group(1), refexplicit=True,
                refwarn=False, refdoc=self.env.docname)
            literal.replace_self(link)
            link += literal


class Pairs(SphinxTransform):
    """A block of C behind a block of another language is beside it; see static/style.css."""
    default_priority = 6
    languages = {"python": "PyTorch", "julia": "Flux"}

    def apply(self, **_):
        for left in list(self.document.findall(nodes.literal_block)):
            name = self.languages.get(left.get("language"))
            index = left.parent.index(left)
            right = left.parent[index + 1] if index + 1 < len(left.parent) else None
            if not (name and isinstance(right, nodes.literal_block)
                    and right.get("language") == "c"):
                continue
            pair = nodes.container(classes=["pair"])
            left.parent.insert(index, pair)
            for block, title in ((left, name), (right, "Weber")):
                block.parent.remove(block)
                side = nodes.container(classes=["side"])
                side += nodes.paragraph("", title, classes=["side-name"])
                side += block
                pair += side


def setup(app):
    app.add_transform(Names)
    app.add_transform(Pairs)
