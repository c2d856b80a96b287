"""A ZooKeeper ensemble as coordinator, where one runs anyway."""
