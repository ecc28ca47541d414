"""Penstock as an MCP server: hundreds of tools behind a handful."""
