"""Tax rates of the shop."""

from __future__ import annotations

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import ShopContext
from agentgym.envs.loca.servers.woocommerce.shapes import parse_amount
from agentgym.tools import ToolError, echo, tool


class Taxes:
    """Tax rates and classes.

    Args:
        shop: Context of the shop.
    """

    def __init__(self, shop: ShopContext) -> None:
        self._shop = shop

    @tool
    def woo_tax_rates_list(
        self, taxClass: str | None = None, perPage: int = 10, page: int = 1
    ) -> list[Row]:
        """List tax rates.

        Args:
            taxClass: Only of this class, such as standard.
            perPage: Items a page, at most 100.
            page: Page, from 1.
        """
        where = {"class = ?": taxClass}
        return self._shop.select_page("tax_rates", where, "priority, id", page, perPage)

    @tool
    def woo_tax_rates_get(self, rateId: int) -> Row:
        """Get a tax rate.

        Args:
            rateId: Tax rate.
        """
        return self._shop.store.get("tax_rates", rateId)

    @tool
    def woo_tax_rates_create(
        self,
        *,
        country: str,
        state: str = "",
        rate: str,
        name: str = "Tax",
        priority: int = 1,
        compound: bool = False,
        shipping: bool = True,
        class_: str = "standard",
    ) -> Row:
        """Create a tax rate for orders from now on.

        Args:
            country: Country code; empty for any.
            state: State code; empty for any.
            rate: Percent.
            name: Name.
            priority: Of rates with one priority the closest to the address counts.
            compound: Tax the taxes of lower priority too.
            shipping: Tax shipping too.
            class_: Tax class.
        """
        percent = float(parse_amount(rate, "rate") or "0")
        if percent > 1000:
            raise ToolError(
                f"invalid argument: rate must be at most 1000 percent, got {echo(rate)}"
            )
        if self._shop.store.value("SELECT 1 FROM tax_classes WHERE slug = ?", class_) is None:
            raise ToolError(f"not found: there is no tax class {echo(class_)}")
        fields = {
            "country": country.strip().upper(),
            "state": state.strip().upper(),
            "rate": f"{percent:.4f}",
            "name": name,
            "priority": priority,
            "compound": compound,
            "shipping": shipping,
            "class": class_,
        }
        return self.woo_tax_rates_get(self._shop.store.insert("tax_rates", **fields))

    @tool
    def woo_tax_classes_list(self) -> list[Row]:
        """List tax classes."""
        return self._shop.store.find("tax_classes", order="rowid")
