"""Hours of mixed load against one server that must stay as it is: `make soak`. A few seconds of it run with the tests."""
