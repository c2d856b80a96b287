"""What makes a store a store: each test is written once and runs on all of them."""
