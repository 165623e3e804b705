"""Spreadsheets: Excel workbooks, and Google Sheets with a formula engine."""
