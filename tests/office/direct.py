"""Servers whose parts' tools can be called as methods of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from agentgym.office.canvas.server import Canvas
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.woocommerce.server import WooCommerce


class _Direct:
    prefix: ClassVar[str] = ""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        parts = vars(self).get("parts", ()) if not name.startswith("_") else ()
        for part in parts:
            if hasattr(part, self.prefix + name):
                tool: Callable[..., Any] = getattr(part, self.prefix + name)
                return tool
        raise AttributeError(name)


class DirectCanvas(_Direct, Canvas):
    prefix = "canvas_"


class DirectShop(_Direct, WooCommerce):
    prefix = "woo_"


class DirectCloud(_Direct, GoogleCloud):
    """Tools have their full names."""
