"""Generated from pinlater.thrift by scripts.idl. Do not edit."""
