pytest_plugins = [
    "tests.fix_server",
    "tests.fix_broker",
    "tests.fix_drivers",
    "tests.fix_proxy",
    "tests.fix_tls",
]
