# SPDX-License-Identifier: Apache-2.0
"""The settings of Sphinx. What Weft's documents need beside Markdown is in the extensions, a file each."""
import pathlib
import sys

here = pathlib.Path(__file__).parent
sys.path.append(str(here))
from pages import root  # noqa: E402
import sources  # noqa: E402
from blocks import kinds  # noqa: E402
from reading import front, in_sections  # noqa: E402

project = "Weft"
html_title = "Weft"
root_doc = front.removesuffix(".md")
include_patterns = [front, *sum(in_sections(root).values(), [])]
exclude_patterns = ["build*", "runs", ".*", "subprojects"]
extensions = ["myst_parser", "contents", "fences", "formulas", "sources", "terms", "exercises"]
myst_heading_anchors = 6
myst_url_schemes = ["http", "https", sources.scheme.removesuffix(":")]
myst_fence_as_directive = sorted(kinds)
highlight_language = "none"
smartquotes = False
html_theme = "furo"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_show_search_summary = False  # which a browser may not read from files
html_copy_source = html_show_copyright = html_show_sphinx = html_use_index = False
html_theme_options = {"footer_icons": [], "top_of_page_buttons": []}
