"""Spans of recoveries for OpenTelemetry (`pyft run --spans`), made by a process of their own.

OpenTelemetry's SDK is optional, `pip install pyft[otel]`: only `recoveries` and the process import it.
"""
