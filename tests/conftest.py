pytest_plugins = ["tests.fix_server", "tests.fix_broker"]
