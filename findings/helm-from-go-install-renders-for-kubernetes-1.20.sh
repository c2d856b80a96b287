#!/usr/bin/env bash
# Helm built by `go install` refuses to render charts for current Kubernetes: it takes the cluster for v1.20.0.
#
# Versions: helm.sh/helm/v3 v3.22.0, Go 1.26. The binaries of the Helm project, of the same version, render for the Kubernetes of their client library.
# Valid input: a chart with `kubeVersion: ">=1.31.0-0"`, and `helm template` without a cluster.
# A user would expect v1.37, which is the version of the client library that the module requires and is compiled with.
# Behaviour: the version is a variable that only the project's Makefile sets for the linker; otherwise it is v1.20.0, for `helm template`,
# `helm lint` and `helm install --dry-run=client`. So charts are refused, or render for 1.20 without a word if they ask
# `.Capabilities.KubeVersion`. With `--kube-version`, and on a cluster, all is well.
# Output seen:
#   library: v0.37.0
#   template: Error: chart requires kubeVersion: >=1.31.0-0 which is incompatible with Kubernetes v1.20.0
#   template --kube-version 1.37: v1.37
# Ends with 0 if it is so, with 1 if it has changed, with 2 if the module can't be had. Compiles for some minutes, in a temporary folder.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export GOPATH=$folder/go GOCACHE=$folder/cache GOBIN=$folder/bin GOFLAGS=-p=2 GOTOOLCHAIN=local
go install helm.sh/helm/v3/cmd/helm@v3.22.0 >/dev/null 2>&1 || { echo "the pinned module can't be had" >&2; exit 2; }
mkdir -p chart/templates
printf 'apiVersion: v2\nname: chart\nversion: 1.0.0\nkubeVersion: ">=1.31.0-0"\n' >chart/Chart.yaml
printf 'version: {{ .Capabilities.KubeVersion }}\n' >chart/templates/version.yaml
found="library: $(go version -m bin/helm | awk '$2 == "k8s.io/client-go" { print $3 }')
template: $(bin/helm template chart 2>&1 | grep Error || true)
template --kube-version 1.37: $(bin/helm template chart --kube-version 1.37 | awk '/^version/ { print $2 }')"
echo "$found"
[ "$found" = "library: v0.37.0
template: Error: chart requires kubeVersion: >=1.31.0-0 which is incompatible with Kubernetes v1.20.0
template --kube-version 1.37: v1.37" ] || { echo "it has changed"; exit 1; }
