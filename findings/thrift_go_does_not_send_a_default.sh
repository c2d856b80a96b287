#!/usr/bin/env bash
# Apache Thrift for Go: an optional field with a default in the IDL is not sent if its value is that default.
#
# Versions: thrift-compiler 0.17.0 (Debian 12), github.com/apache/thrift v0.17.0.
# Behaviour: such a field is a plain value, not a pointer, and "is it set" compares it with the default of the IDL. A program that sets it to that value,
# on purpose, sends nothing. So a server with a default of its own for a field that is not there can't be asked for the IDL's value.
# (In Python, Perl, PHP, Ruby, C++ and Node the same field is always sent, also if the program did not set it.)
# Output seen:
#   2: 1 bytes
#   3: 8 bytes
# Ends with 0 while this is so, with 1 if it has changed, with 2 if the packages can't be had.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq thrift-compiler=0.17.0-2+b2 >/dev/null 2>&1 || { echo "the pinned package can't be had" >&2; exit 2; }
dpkg -x thrift-compiler_*.deb unpacked
printf 'struct Job { 4: optional i32 attempts = 2 }\n' >job.thrift
unpacked/usr/bin/thrift --gen go -out . job.thrift
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"

	"finding/job"

	"github.com/apache/thrift/lib/go/thrift"
)

func main() {
	for _, attempts := range []int32{2, 3} {
		one := job.NewJob()
		one.Attempts = attempts
		buffer := thrift.NewTMemoryBuffer()
		if err := one.Write(context.Background(), thrift.NewTBinaryProtocolConf(buffer, nil)); err != nil {
			panic(err)
		}
		fmt.Printf("%d: %d bytes\n", attempts, buffer.Len())
	}
}
GO
export GOPATH=$folder/go GOCACHE=$folder/cache GOFLAGS=-mod=mod
go mod init finding >/dev/null 2>&1
go get github.com/apache/thrift@v0.17.0 >/dev/null 2>&1 || { echo "the pinned module can't be had" >&2; exit 2; }
found=$(go run .)
echo "$found"
[ "$found" = $'2: 1 bytes\n3: 8 bytes' ] || { echo "it has changed"; exit 1; }
