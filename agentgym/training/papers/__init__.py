"""The benchmarks' own metrics, tables, presets and figures, one module for each paper."""
