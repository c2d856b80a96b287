#!/usr/bin/env bash
# Kubernetes' API server refuses for verifying the private key that it takes for signing, if that is an ECDSA key in PKCS#8. An RSA key passes.
#
# Versions: k8s.io/client-go v0.36.3, the library that kube-apiserver v1.36.3 reads both flags with; Go 1.26; OpenSSL 3.0.
# Valid input: private keys as `openssl genpkey` writes them, RSA and P-256. `kube-apiserver --help` says of --service-account-key-file:
# "File containing PEM-encoded x509 RSA or ECDSA private or public keys".
# A user would expect that one key file serves both flags, as it does for RSA: the format is the same, and the help names private keys of both.
# Behaviour: PrivateKeyFromFile (--service-account-signing-key-file) reads all of them. PublicKeysFromFile (--service-account-key-file) reads
# RSA in PKCS#8 and ECDSA in the older format (EC PRIVATE KEY), and says of ECDSA in PKCS#8 that there is no key in the file. The API server
# then does not start. Kubernetes' own tools write the older format, so they don't show it. A public key or a certificate in the file works.
# Output seen:
#   rsa-pkcs8.key: signing yes, verifying yes
#   ec-older.key: signing yes, verifying yes
#   ec-pkcs8.key: signing yes, verifying data does not contain any valid RSA or ECDSA public keys
# Ends with 0 if it is so, with 1 if it has changed, with 2 if the module can't be had. Changes nothing outside a temporary folder.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa-pkcs8.key 2>/dev/null
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out ec-pkcs8.key 2>/dev/null
openssl ec -in ec-pkcs8.key -out ec-older.key 2>/dev/null
cat >main.go <<'GO'
package main

import (
	"fmt"
	"strings"

	"k8s.io/client-go/util/keyutil"
)

func said(err error) string {
	if err == nil {
		return "yes"
	}
	_, reason, _ := strings.Cut(err.Error(), ".key: ")
	return reason
}

func main() {
	for _, file := range []string{"rsa-pkcs8.key", "ec-older.key", "ec-pkcs8.key"} {
		_, signing := keyutil.PrivateKeyFromFile(file)
		_, verifying := keyutil.PublicKeysFromFile(file)
		fmt.Printf("%s: signing %s, verifying %s\n", file, said(signing), said(verifying))
	}
}
GO
export GOPATH=$folder/go GOCACHE=$folder/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local
go mod init finding >/dev/null 2>&1
go get k8s.io/client-go@v0.36.3 >/dev/null 2>&1 || { echo "the pinned module can't be had" >&2; exit 2; }
found=$(go run .)
echo "$found"
[ "$found" = "rsa-pkcs8.key: signing yes, verifying yes
ec-older.key: signing yes, verifying yes
ec-pkcs8.key: signing yes, verifying data does not contain any valid RSA or ECDSA public keys" ] || { echo "it has changed"; exit 1; }
