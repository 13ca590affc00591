"""The blocking twins of the asyncio API."""
