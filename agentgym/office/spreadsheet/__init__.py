"""Spreadsheets: Excel workbooks and Google Sheets on one formula engine."""
