module pinlater-example

go 1.18

require github.com/apache/thrift v0.17.0
