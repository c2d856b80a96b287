"""Generated from pinlater.thrift by pinlater.wire.freshness. Do not edit."""
