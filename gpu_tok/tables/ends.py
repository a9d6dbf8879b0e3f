"""What a chunk is told about its place: the flags of its key.

A chunk's ids can depend on where it stands (the variants E of a definition). Everything in a definition that acts only
at an end is switched off for a chunk that does not have that end.
"""

from __future__ import annotations

SECTION_FIRST = 1  # it begins a raw section: `Prepend` and `Strip` on the left act
SECTION_LAST = 2  # it ends a raw section: `Strip` on the right acts
DOCUMENT_FIRST = 4  # it begins at byte 0 of the text: `prepend_scheme: first` acts
SUBSECTION_FIRST = 8  # it begins a sub-section: `prepend_scheme: always` and `add_prefix_space` act
WHOLE = 16  # it is a whole raw section in which added tokens with `normalized: true` have still to be found
