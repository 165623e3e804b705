"""LOCA-bench: office work with simulated services, at a configurable environment length."""

from agentgym.assemble.registry import register

# Limits of `length` in tokens. The maximum exceeds the usual context windows.
MIN_LENGTH, MAX_LENGTH = 4_000, 4_000_000
# Maximum of `size`. Every task can generate this many distinct names, SKUs and ids.
MAX_SIZE = 100_000
# Environment lengths in tokens (section 2.3 of the paper).
LENGTHS = {
    "8k": 8_000,
    "16k": 16_000,
    "32k": 32_000,
    "64k": 64_000,
    "96k": 96_000,
    "128k": 128_000,
    "256k": 256_000,
}

_TASKS = (
    "ab_testing:ABTesting",
    "academic_warning:AcademicWarning",
    "apply_phd_email:ApplyPhDEmail",
    "canvas_arrange_exam:CanvasArrangeExam",
    "canvas_list_test:CanvasListTest",
    "course_assistant:CourseAssistant",
    "excel_market_research:ExcelMarketResearch",
    "filter_low_selling_products:FilterLowSellingProducts",
    "machine_operating:MachineOperating",
    "nhl_b2b_analysis:NhlB2bAnalysis",
    "payable_invoice_checker:PayableInvoiceChecker",
    "set_conf_cr_ddl:SetConfCrDdl",
    "update_material_inventory:UpdateMaterialInventory",
    "woocommerce_new_welcome:WoocommerceNewWelcome",
    "woocommerce_stock_alert:WoocommerceStockAlert",
)

for _task in _TASKS:
    register(
        f"agentgym.envs.loca.tasks.{_task}",
        presets={name: {"length": length} for name, length in LENGTHS.items()},
    )
