"""Programs of others as tools: servers that speak the Model Context Protocol."""
