"""Shapes of this part are executed, too."""

from jaxtyping import install_import_hook

install_import_hook("repose.positions_rl", "beartype.beartype")
