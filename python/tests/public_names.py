# SPDX-License-Identifier: Apache-2.0
def public_names(module):
    """Not those that pytest adds to modules of a package with a plugin."""
    return {name for name in dir(module) if name.isidentifier() and not name.startswith("_")}
