"""Update raw material stock and product stock after new orders (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import floor, sqrt
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from pydantic import Field, TypeAdapter

from agentgym.envs.loca.catalog import cents, in_decimals
from agentgym.envs.loca.checks import digest, exact, file_state, is_blank, number, table_failures
from agentgym.envs.loca.draws import (
    LAST,
    address,
    load_texts,
    people,
    pick,
    shuffled,
    text_of,
)
from agentgym.envs.loca.fragments import (
    as_records,
    find_spreadsheet,
    read_shop,
    read_table,
    settle_sheet,
)
from agentgym.envs.loca.plan import Plan, write
from agentgym.envs.loca.published.files import Columns, as_finite, as_name, read_json, typed_rows
from agentgym.envs.loca.published.rules import inventory_failures
from agentgym.envs.loca.published.states import (
    PublishedConfig,
    load_workspace,
    read_shop_records,
    read_spreadsheet,
)
from agentgym.envs.loca.records import Fields, Grid, Record, Rows
from agentgym.envs.loca.service_checks import other_sheet_failures, other_sheets, values_of
from agentgym.envs.loca.task import OfficeTask
from agentgym.envs.loca.writing.order_notes import draw_order_note, read_amended
from agentgym.text.tools import ToolError

TITLE = "Material Inventory Management"
RECIPES = "BOM"
STOCK = "Material_Inventory"
RECIPE = tuple(
    "Product SKU|Product Name|Raw Material ID|Raw Material Name|Unit Quantity|Unit".split("|")
)
MATERIAL = ("Material ID", "Material Name", "Current Stock", "Unit", "Min Stock", "Supplier")
CELLS = dict.fromkeys(MATERIAL, exact) | {"Current Stock": number(0.001), "Min Stock": number()}
CREATED = datetime(2024, 1, 1, tzinfo=UTC)  # when the products were added
LAST_UPDATE = datetime(2025, 1, 12, 18, tzinfo=UTC)  # the time stated in the task prompt
WORDS = load_texts("words")["UpdateMaterialInventory"]
# Range of the quantity of a material in one product, by unit and in hundredths of the unit.
QUANTITIES = {"m2": (50, 501, 10), "m": (50, 501, 10), "L": (5, 51, 1), "pcs": (200, 2_001, 100)}
# Shop tables that the plan does not change, except for MUTABLE_COLUMNS of products.
PROTECTED = (
    "products", "product_categories", "categories", "product_tags", "tags", "orders", "items",
    "notes", "customers", "settings",
)  # fmt: skip
MAX_PRODUCTS = 1_000  # the plan makes one call per product
# Probability of each reason for ignoring an order.
OTHERS = {"old": 0.1, "exact": 0.05, "done": 0.05, "unpaid": 0.1, "void": 0.1, "withdrawn": 0.6}
# Probability that the remaining material is just enough, or just too little, for a whole number of
# products.
_EDGE_RATE = 0.6
# The amounts of materials, and the amounts in each product, in hundredths of the unit.
Amounts: TypeAlias = dict[str, int]
Recipes: TypeAlias = dict[str, Amounts]
MUTABLE_COLUMNS = ("date_modified", "stock_quantity", "stock_status")


@dataclass(frozen=True)
class _Initial:
    material_inventory: dict[str, float]


@dataclass(frozen=True)
class _Final:
    woocommerce_inventory: dict[str, int]
    google_sheets_material_inventory: dict[str, float]


@dataclass(frozen=True)
class _Results:
    initial_inventories: _Initial
    expected_final_inventories: _Final


@dataclass(frozen=True, kw_only=True)
class UpdateMaterialInventoryConfig(PublishedConfig):
    """The size is the number of orders. Most defaults grow with the square root of the size.

    Attributes:
        new_orders: The number of new orders, at most the size. Default: 65 for 100 orders.
        products: The number of products made of raw materials. Default: 4 for 13 orders, 24 for
            400 orders.
        materials: The number of materials. Default: 5 for up to 20 orders, 24 for 400 orders.
        materials_per_product: The maximum number of materials per product. Default: 3 to 5.
    """

    new_orders: Annotated[int, Field(ge=1, le=100_000)] | None = None
    products: Annotated[int, Field(ge=1, le=MAX_PRODUCTS)] | None = None
    materials: Annotated[int, Field(ge=2, le=100)] | None = None
    materials_per_product: Annotated[int, Field(ge=2, le=100)] | None = None


class UpdateMaterialInventory(OfficeTask[UpdateMaterialInventoryConfig]):
    """Deduct new orders from the raw material stock, and update the shop's stock to match the
    remaining materials.
    """

    Config = UpdateMaterialInventoryConfig
    servers = (
        "filesystem",
        "terminal",
        "python_execute",
        "google_sheet",
        "woocommerce",
        "claim_done",
    )
    outputs = ("stock of the materials", "stock of the products")
    mutable_tables = ("woocommerce.products", "google_sheet.lines")
    harmless: ClassVar[Mapping[str, str]] = {
        "woocommerce.products.date_modified": "when a product was changed last"
    }
    tokens_per_unit = 536.0
    text = text_of("prompts", "UpdateMaterialInventory")

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        # A plan has seven fixed steps and about 1.15 steps per product.
        products = round((steps - 7) / 1.15)
        if not 1 <= products <= MAX_PRODUCTS:
            most = 7 + MAX_PRODUCTS
            raise ValueError(f"steps must be about 8 to {most} for {cls.__name__}, got {steps}")
        return {"size": max(4, 2 * products), "products": products}

    def draw(self, size: int) -> None:
        scale = round(1.2 * sqrt(size))
        materials = self._materials(self.config.materials or min(100, max(5, scale)))
        recipes = self._recipes(materials, self.config.products or max(2, scale), size)
        sold = Counter[str]()
        skus = [*recipes, "GIFT-CARD", "ASSEMBLY"]
        orders = self._orders(size, skus, sold)
        used = Counter[str]()
        for sku, count in sold.items():
            for material, need in recipes.get(sku, {}).items():
                used[material] += count * need
        left, before = {}, {}
        for key, facts in materials.items():
            needs = [recipe[key] for recipe in recipes.values() if key in recipe]
            left[key] = self._left(needs, QUANTITIES[facts["unit"]][2], used[key])
            before[key] = left[key] + used[key]
        old = {sku: max(0, _most(recipe, before) - sold[sku]) for sku, recipe in recipes.items()}
        numbers = dict(
            zip(skus, self.shop.products.add_all(self._products(skus, old)), strict=True)
        )
        for order in orders:
            for line in order["line_items"]:
                line["product_id"] = numbers[line.pop("sku")]
        self._sell(orders)
        sheet, rows = self._fill_sheets(materials, recipes, before)
        text = "Materials are kept in Google Sheets, products and orders in the shop.\n"
        self.files.write("README.md", text)
        self._set_truth(sheet, rows, left, numbers, recipes)

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [])
        answer = state / "groundtruth_workspace" / "expected_results.json"
        results = read_json(answer, TypeAdapter(_Results))
        tables = read_spreadsheet(state, TITLE, "Sheet1", RECIPES, STOCK)
        place = f"{state}: cells.json"
        columns: Columns = dict.fromkeys(MATERIAL, str)
        stock = typed_rows(f"{place}: {STOCK}", tables[STOCK], columns, MATERIAL[:1])
        left = {row["Material ID"]: _hundredths(row["Current Stock"]) for row in stock}
        if results.initial_inventories.material_inventory != {m: n / 100 for m, n in left.items()}:
            raise ValueError(f"{place}: {STOCK} must match {answer} in an unused state")
        columns = {"Product SKU": as_name, "Raw Material ID": as_name, "Unit Quantity": _hundredths}
        recipes: Recipes = {}
        for row in typed_rows(f"{place}: {RECIPES}", tables[RECIPES], columns, list(columns)[:2]):
            if row["Raw Material ID"] not in left or not row["Unit Quantity"]:
                raise ValueError(f"{place}: {RECIPES} must contain material amounts, got {row}")
            recipe = recipes.setdefault(row["Product SKU"], {})
            recipe[row["Raw Material ID"]] = row["Unit Quantity"]
        numbers = self._load_shop(state, recipes, left)
        sheet = self.sheets.add_spreadsheet(TITLE, tables)
        published = vars(results.expected_final_inventories)
        self._set_truth(sheet, stock, left, numbers, recipes, published=published)

    def _load_shop(self, state: Path, recipes: Recipes, left: dict[str, int]) -> dict[str, int]:
        """Load the shop, deduct the materials for the orders, and return product ids by SKU."""
        products, orders = read_shop_records(state)
        fixed = {"categories": ["Furniture"], "date_created": CREATED}
        try:
            ids = self.shop.products.add_all({**vars(product), **fixed} for product in products)
        except ToolError as error:
            raise ValueError(f"{state}: products.json: {error}") from None
        numbers = {product.sku: number for product, number in zip(products, ids, strict=True)}
        for k, order in enumerate(orders, 1):
            # LOCA-bench uses the host's time zone.
            paid = LAST_UPDATE + timedelta(minutes=k)
            lines = []
            for line in order.line_items:
                sku = line.product_id.sku
                lines.append({"product_id": numbers[sku], "quantity": line.quantity})
                for material, need in recipes.get(sku, {}).items():
                    left[material] -= need * line.quantity
            dates = {"date_created": paid, "date_paid": paid}
            self.shop.orders.add_all([{"status": order.status, "line_items": lines, **dates}])
        return numbers

    def _set_truth(
        self,
        sheet: str,
        rows: Rows,
        left: Amounts,
        numbers: Mapping[str, int],
        recipes: Recipes,
        **more: Any,
    ) -> None:
        states, stock = {}, []
        for product in self.shop.products.all():
            states[product["id"]] = [product.get("stock_quantity"), product["stock_status"]]
        for sku, recipe in recipes.items():
            if sku in numbers:
                count = _most(recipe, left)
                states[numbers[sku]] = [count, "instock" if count else "outofstock"]
        for row in rows:
            stock.append({**row, "Current Stock": in_decimals(left[row["Material ID"]])})
        self.truth = {
            "rows": stock,
            "sheet": sheet,
            "stock": states,
            "shop": digest(self.shop.store, *PROTECTED, without=MUTABLE_COLUMNS),
            "sheets": other_sheets(self.sheets, sheet, STOCK),
            "files": file_state(self.files),
            **more,
        }

    def _materials(self, count: int) -> dict[str, dict[str, str]]:
        names = []
        for unit, bases in WORDS["materials"].items():
            for base, grade in itertools.product(bases, WORDS["grades"]):
                names.append((base + grade, unit))
        chosen = shuffled(self.rng, names, count)
        numbers = shuffled(self.rng, range(100, 1_000), count)
        materials = {}
        for key, (name, unit) in zip(numbers, chosen, strict=False):
            supplier = f"{self.rng.choice(LAST)} Materials"
            materials[f"MAT-{key}"] = {"name": name, "unit": unit, "supplier": supplier}
        return materials

    def _recipes(
        self, materials: Mapping[str, Mapping[str, str]], count: int, size: int
    ) -> Recipes:
        usual = 2 + min(3, max(1, round(sqrt(size) / 5)))
        most = min(len(materials), self.config.materials_per_product or usual)
        recipes: Recipes = {}
        for place in map(int, self.rng.permutation(10 * count)[:count]):
            kind = pick(self.rng, WORDS["kinds"])
            chosen = self.rng.choice(list(materials), self.whole(2, most + 1), replace=False)
            recipe = {}
            for material in chosen.tolist():
                quantities = np.arange(*QUANTITIES[materials[material]["unit"]])
                recipe[material] = int(self.rng.choice(quantities))
            recipes[f"{kind.upper()}-{place:03d}"] = recipe
        return recipes

    def _left(self, needs: Sequence[int], step: int, used: int) -> int:
        if not needs:
            return step * self.whole(1, 500)
        need = pick(self.rng, needs)
        counts: list[int] = self.rng.integers(3, 150, 8).tolist()
        if self.rng.random() >= _EDGE_RATE:
            return need * counts[0] + step * self.whole(0, max(1, need // step))
        if self.happens(0.25):
            return need * counts[0] - step
        # Prefer counts for which floating-point arithmetic gives a wrong result.
        for count in counts:
            if int(((need * count + used) / 100 - used / 100) / (need / 100)) != count:
                return need * count
        return need * counts[0]

    def _orders(self, size: int, skus: Sequence[str], sold: Counter[str]) -> list[Record]:
        new_count = min(size, self.config.new_orders or max(1, round(0.65 * size)))
        kinds = ["new"] * new_count + ["withdrawn", "exact", "old", "unpaid"][: size - new_count]
        rest = max(0, size - len(kinds))
        kinds += self.rng.choice(list(OTHERS), rest, p=list(OTHERS.values())).tolist()
        orders = []
        for k, kind in enumerate(kinds):
            items = [self._sku(skus) for _ in range(self.whole(1, 4))]
            lines = {sku: self.whole(1, 4) for sku in items}
            note, pieces = self._note(kind, lines)
            # The first order, and every order exactly at the time limit, must contain furniture.
            while (not k or kind == "exact") and not any(pieces.get(sku) for sku in skus[:-2]):
                lines = {skus[0]: 1, **lines}
                note, pieces = self._note(kind, lines)
            if kind == "new":
                sold.update(pieces)
            order = self._dates(kind, first=not k)
            order["line_items"] = [{"sku": sku, "quantity": n} for sku, n in lines.items()]
            orders.append({**order, "customer_note": note})
        return sorted(orders, key=lambda order: order["date_created"])

    def _note(self, kind: str, lines: Mapping[str, int]) -> tuple[str, dict[str, int]]:
        withdrawn = kind == "withdrawn" or (kind != "new" and self.happens(1 / 6))
        named = {_name(sku): count for sku, count in lines.items()}
        note, pieces = draw_order_note(self.rng, named, withdrawn=withdrawn)
        return note, {sku: pieces[_name(sku)] for sku in lines}

    def _sku(self, skus: Sequence[str]) -> str:
        if self.happens(1 / 6):
            return skus[len(skus) - 1 - self.whole(2)]
        return skus[self.whole(len(skus) - 2)]

    def _dates(self, kind: str, first: bool) -> Record:
        after = LAST_UPDATE + timedelta(seconds=1 if first else self.whole(1, 62 * 3_600))
        before = LAST_UPDATE - timedelta(seconds=self.whole(1, 240 * 3_600))
        late = timedelta(seconds=int(self.rng.choice([0, 45, 600, 3_600])))
        if self.happens(0.2):
            late += timedelta(days=self.whole(1, 6))
        if kind == "unpaid":
            status = pick(self.rng, ["pending", "on-hold", "failed"])
            return {"status": status, "date_created": after}
        paid = {"old": before, "exact": LAST_UPDATE}.get(kind, after)
        void = pick(self.rng, ["cancelled", "refunded"])
        status = {"done": "completed", "void": void}.get(kind, "processing")
        dates = {"status": status, "date_created": paid - late, "date_paid": paid}
        if kind == "done":
            dates["date_completed"] = paid
        return dates

    def _products(self, skus: Sequence[str], old: Mapping[str, int]) -> Iterator[Record]:
        for sku in skus:
            stock = {"stock_quantity": old[sku]} if sku in old else {"virtual": True}
            price = cents(self.rng, 2_000, 90_000)
            record = {"name": _name(sku), "sku": sku, "regular_price": price}
            yield {**record, "date_created": CREATED, **stock}

    def _sell(self, orders: Sequence[Record]) -> None:
        members = []
        for k, name in enumerate(people(self.rng, 4 + len(orders) // 12), 1):
            first, _, last = name.partition(" ")
            home = {
                "address_1": f"{self.whole(1, 200)} {self.rng.choice(LAST)} Street",
                "city": "Springfield",
                "postcode": f"{self.whole(10_000, 99_999)}",
                "country": "US",
            }
            mail = address(name, k, "example.com")
            person = {"first_name": first, "last_name": last, "email": mail}
            members.append({**person, "billing": {**person, **home}})
        customers = self.shop.customers.add_all(members)
        self.shop.orders.add_all(
            {**order, "customer_id": pick(self.rng, customers)} for order in orders
        )

    def _fill_sheets(
        self, materials: Fields, recipes: Recipes, before: Amounts
    ) -> tuple[str, list[Record]]:
        old = self.rng.choice(list(materials), 2, replace=False).tolist()
        table, rows = [], []
        for sku, recipe in {**recipes, "LAMP-1000": dict.fromkeys(old, 200)}.items():
            for key, need in recipe.items():
                name, unit, _ = materials[key].values()
                table.append((sku, _name(sku), key, name, need / 100, unit))
        for key, material in shuffled(self.rng, list(materials.items())):
            name, unit, supplier = material.values()
            rows.append((key, name, before[key] / 100, unit, before[key] // 3_000, supplier))
        sheets: dict[str, list[Any]] = {
            "Sheet1": [],
            RECIPES: [RECIPE, *shuffled(self.rng, table)],
            STOCK: [MATERIAL, *rows],
        }
        spreadsheet = self.sheets.add_spreadsheet(TITLE, sheets)
        return spreadsheet, as_records(MATERIAL, rows)

    def plan(self) -> Plan:
        sheet = yield find_spreadsheet(TITLE)
        table = yield read_table(sheet, RECIPES)
        stock = yield read_table(sheet, STOCK)
        keep = itemgetter("sku", "id")
        products = yield from read_shop("the products", "woo_products_list", keep, orderby="id")
        orders = yield from read_shop(
            "the orders", "woo_orders_list", _read_new, orderby="id", order="asc"
        )
        recipes: dict[str, list[tuple[str, Decimal]]] = {}
        for sku, _, material, _, need, _ in table["rows"][1:]:
            recipes.setdefault(sku, []).append((material, Decimal(str(need))))
        materials = [row for row in stock["rows"] if not is_blank(row)]
        # Converting a float through a string gives the exact decimal value.
        left = {row[0]: Decimal(str(row[2])) for row in materials[1:]}
        # Leave out the materials whose rows the agent has already updated.
        written = {stock["rows"][k][0] for k in stock["own"]}
        skus = {number: sku for sku, number in products}
        for product, count in itertools.chain.from_iterable(orders):
            for material, need in recipes.get(skus[product], []):
                left[material] -= count * need * (material not in written)
        updates = []
        for sku, product in products:
            if sku in recipes:
                amounts = [Fraction(left[m]) / Fraction(need) for m, need in recipes[sku]]
                count = floor(min(amounts))
                label = f"Set the stock of {sku} to {count}."
                data = {"productId": product, "productData": {"stock_quantity": count}}
                updates.append(write(label, self.outputs[1], "woo_products_update", **data))
        where = {"spreadsheet_id": sheet, "sheet": STOCK}
        updated = [[*row[:2], str(left[row[0]]), *row[3:]] for row in materials[1:]]
        expected = as_records(MATERIAL, updated)
        step = functools.partial(write, thing="spreadsheets", **where)
        label = "Write the stock of the materials."
        entries = yield from settle_sheet(
            functools.partial(step, label, self.outputs[0], "update_cells"),
            where,
            [materials[0], *updated],
            f"C2:C{len(materials)}",
            lambda table: not any(_stock_failures(table, expected)),
        )
        yield [*entries, *updates]

    def task_failures(self) -> Iterator[str]:
        truth = self.truth
        yield from other_sheet_failures(self.sheets, truth["sheet"], STOCK, truth["sheets"])
        yield from _stock_failures(values_of(self.sheets, truth["sheet"], STOCK), truth["rows"])
        rows = self.shop.store.rows("SELECT id, stock_quantity, stock_status FROM products")
        products = {row["id"]: [row["stock_quantity"], row["stock_status"]] for row in rows}
        for product, (count, status) in truth["stock"].items():
            stock, state = products.get(product, (None, "gone"))
            if (stock, state) != (count, status):
                yield f"product {product} has the stock {stock} ({state}), expected {count} ({status})"
        if digest(self.shop.store, *PROTECTED, without=MUTABLE_COLUMNS) != truth["shop"]:
            yield "something other than product stock was changed in the shop"

    def published_failures(self) -> Iterator[str]:
        truth = self.truth
        stock = values_of(self.sheets, truth["sheet"], STOCK)
        return inventory_failures(self.shop, stock, *truth["published"].values())


def _hundredths(cell: object) -> int:
    amount = Decimal(str(as_finite(cell))) * 100
    if amount < 0 or amount % 1:
        raise ValueError(f"must be an amount with at most two decimals, got {cell!r}")
    return int(amount)


def _stock_failures(table: Grid, rows: Rows) -> Iterator[str]:
    yield from table_failures(STOCK, table, rows, CELLS, ("Material ID",), ordered=True)


def _most(recipe: Amounts, stock: Amounts) -> int:
    return min(stock[material] // need for material, need in recipe.items())


def _name(sku: str) -> str:
    return sku.replace("-", " ").title()


def _read_new(order: Record) -> list[list[Any]] | None:
    if (
        order["status"] != "processing"
        or datetime.fromisoformat(order["date_paid"]).replace(tzinfo=UTC) <= LAST_UPDATE
    ):
        return None
    lines = {line["name"]: line for line in order["line_items"]}
    counts = {name: line["quantity"] for name, line in lines.items()}
    pieces = read_amended(counts, order.get("customer_note") or "")
    sold = []
    for name, line in lines.items():
        if pieces[name]:
            sold.append([line["product_id"], pieces[name]])
    return sold or None
